"""The option messages of Caffe's layer types (Caffe 1.0); see `notation` for how to read this."""

LAYERS = """
AccuracyParameter
  1 top_k uint32 = 1
  2 axis int32 = 1
  3 ignore_label int32

ArgMaxParameter
  1 out_max_val bool = false
  2 top_k uint32 = 1
  3 axis int32

ClipParameter
  1 min float!
  2 max float!

ConcatParameter
  1 concat_dim uint32 = 1 deprecated
  2 axis int32 = 1

BatchNormParameter
  1 use_global_stats bool
  2 moving_average_fraction float = 0.999
  3 eps float = 1e-05

BiasParameter
  1 axis int32 = 1
  2 num_axes int32 = 1
  3 filler FillerParameter

ContrastiveLossParameter
  1 margin float = 1
  2 legacy_version bool = false

ConvolutionParameter
  enum Engine DEFAULT=0 CAFFE=1 CUDNN=2
  1 num_output uint32
  2 bias_term bool = true
  3 pad uint32*
  4 kernel_size uint32*
  5 group uint32 = 1
  6 stride uint32*
  7 weight_filler FillerParameter
  8 bias_filler FillerParameter
  9 pad_h uint32 = 0
  10 pad_w uint32 = 0
  11 kernel_h uint32
  12 kernel_w uint32
  13 stride_h uint32
  14 stride_w uint32
  15 engine Engine = DEFAULT
  16 axis int32 = 1
  17 force_nd_im2col bool = false
  18 dilation uint32*

CropParameter
  1 axis int32 = 2
  2 offset uint32*

DataParameter
  enum DB LEVELDB=0 LMDB=1
  1 source string
  2 scale float = 1 deprecated
  3 mean_file string deprecated
  4 batch_size uint32
  5 crop_size uint32 = 0 deprecated
  6 mirror bool = false deprecated
  7 rand_skip uint32 = 0 deprecated
  8 backend DB = LEVELDB
  9 force_encoded_color bool = false
  10 prefetch uint32 = 4

DropoutParameter
  1 dropout_ratio float = 0.5

DummyDataParameter
  1 data_filler FillerParameter*
  2 num uint32* deprecated
  3 channels uint32* deprecated
  4 height uint32* deprecated
  5 width uint32* deprecated
  6 shape BlobShape*

EltwiseParameter
  enum EltwiseOp PROD=0 SUM=1 MAX=2
  1 operation EltwiseOp = SUM
  2 coeff float*
  3 stable_prod_grad bool = true

ELUParameter
  1 alpha float = 1

EmbedParameter
  1 num_output uint32
  2 input_dim uint32
  3 bias_term bool = true
  4 weight_filler FillerParameter
  5 bias_filler FillerParameter

ExpParameter
  1 base float = -1
  2 scale float = 1
  3 shift float = 0

FlattenParameter
  1 axis int32 = 1
  2 end_axis int32 = -1

HDF5DataParameter
  1 source string
  2 batch_size uint32
  3 shuffle bool = false

HDF5OutputParameter
  1 file_name string

HingeLossParameter
  enum Norm L1=1 L2=2
  1 norm Norm = L1

ImageDataParameter
  1 source string
  2 scale float = 1 deprecated
  3 mean_file string deprecated
  4 batch_size uint32 = 1
  5 crop_size uint32 = 0 deprecated
  6 mirror bool = false deprecated
  7 rand_skip uint32 = 0
  8 shuffle bool = false
  9 new_height uint32 = 0
  10 new_width uint32 = 0
  11 is_color bool = true
  12 root_folder string = ""

InfogainLossParameter
  1 source string
  2 axis int32 = 1

InnerProductParameter
  1 num_output uint32
  2 bias_term bool = true
  3 weight_filler FillerParameter
  4 bias_filler FillerParameter
  5 axis int32 = 1
  6 transpose bool = false

InputParameter
  1 shape BlobShape*

LogParameter
  1 base float = -1
  2 scale float = 1
  3 shift float = 0

LRNParameter
  enum NormRegion ACROSS_CHANNELS=0 WITHIN_CHANNEL=1
  enum Engine DEFAULT=0 CAFFE=1 CUDNN=2
  1 local_size uint32 = 5
  2 alpha float = 1
  3 beta float = 0.75
  4 norm_region NormRegion = ACROSS_CHANNELS
  5 k float = 1
  6 engine Engine = DEFAULT

MemoryDataParameter
  1 batch_size uint32
  2 channels uint32
  3 height uint32
  4 width uint32

MVNParameter
  1 normalize_variance bool = true
  2 across_channels bool = false
  3 eps float = 1e-09

ParameterParameter
  1 shape BlobShape

PoolingParameter
  enum PoolMethod MAX=0 AVE=1 STOCHASTIC=2
  enum Engine DEFAULT=0 CAFFE=1 CUDNN=2
  enum RoundMode CEIL=0 FLOOR=1
  1 pool PoolMethod = MAX
  2 kernel_size uint32
  3 stride uint32 = 1
  4 pad uint32 = 0
  5 kernel_h uint32
  6 kernel_w uint32
  7 stride_h uint32
  8 stride_w uint32
  9 pad_h uint32 = 0
  10 pad_w uint32 = 0
  11 engine Engine = DEFAULT
  12 global_pooling bool = false
  13 round_mode RoundMode = CEIL

PowerParameter
  1 power float = 1
  2 scale float = 1
  3 shift float = 0

PythonParameter
  1 module string
  2 layer string
  3 param_str string = ""
  4 share_in_parallel bool = false deprecated

RecurrentParameter
  1 num_output uint32 = 0
  2 weight_filler FillerParameter
  3 bias_filler FillerParameter
  4 debug_info bool = false
  5 expose_hidden bool = false

ReductionParameter
  enum ReductionOp SUM=1 ASUM=2 SUMSQ=3 MEAN=4
  1 operation ReductionOp = SUM
  2 axis int32 = 0
  3 coeff float = 1

ReLUParameter
  enum Engine DEFAULT=0 CAFFE=1 CUDNN=2
  1 negative_slope float = 0
  2 engine Engine = DEFAULT

ReshapeParameter
  1 shape BlobShape
  2 axis int32 = 0
  3 num_axes int32 = -1

ScaleParameter
  1 axis int32 = 1
  2 num_axes int32 = 1
  3 filler FillerParameter
  4 bias_term bool = false
  5 bias_filler FillerParameter

SigmoidParameter
  enum Engine DEFAULT=0 CAFFE=1 CUDNN=2
  1 engine Engine = DEFAULT

SliceParameter
  1 slice_dim uint32 = 1 deprecated
  2 slice_point uint32*
  3 axis int32 = 1

SoftmaxParameter
  enum Engine DEFAULT=0 CAFFE=1 CUDNN=2
  1 engine Engine = DEFAULT
  2 axis int32 = 1

SwishParameter
  1 beta float = 1

TanHParameter
  enum Engine DEFAULT=0 CAFFE=1 CUDNN=2
  1 engine Engine = DEFAULT

TileParameter
  1 axis int32 = 1
  2 tiles int32

ThresholdParameter
  1 threshold float = 0

WindowDataParameter
  1 source string
  2 scale float = 1
  3 mean_file string
  4 batch_size uint32
  5 crop_size uint32 = 0
  6 mirror bool = false
  7 fg_threshold float = 0.5
  8 bg_threshold float = 0.5
  9 fg_fraction float = 0.25
  10 context_pad uint32 = 0
  11 crop_mode string = "warp"
  12 cache_images bool = false
  13 root_folder string = ""

SPPParameter
  enum PoolMethod MAX=0 AVE=1 STOCHASTIC=2
  enum Engine DEFAULT=0 CAFFE=1 CUDNN=2
  1 pyramid_height uint32
  2 pool PoolMethod = MAX
  6 engine Engine = DEFAULT

PReLUParameter
  1 filler FillerParameter
  2 channel_shared bool = false
"""
