"""The messages of Caffe 1.0 that nets, solvers and stored arrays are made of; see `notation` for how to read this."""

CORE = """
BlobShape
  1 dim int64* packed

BlobProto
  1 num int32 = 0 deprecated
  2 channels int32 = 0 deprecated
  3 height int32 = 0 deprecated
  4 width int32 = 0 deprecated
  5 data float[]
  6 diff float[]
  7 shape BlobShape
  8 double_data double[]
  9 double_diff double[]

BlobProtoVector
  1 blobs BlobProto*

Datum
  1 channels int32
  2 height int32
  3 width int32
  4 data bytes
  5 label int32
  6 float_data float[] unpacked
  7 encoded bool = false

FillerParameter
  enum VarianceNorm FAN_IN=0 FAN_OUT=1 AVERAGE=2
  1 type string = "constant"
  2 value float = 0
  3 min float = 0
  4 max float = 1
  5 mean float = 0
  6 std float = 1
  7 sparse int32 = -1
  8 variance_norm VarianceNorm = FAN_IN

NetParameter
  1 name string
  2 layers V1LayerParameter* deprecated
  3 input string* deprecated
  4 input_dim int32* deprecated
  5 force_backward bool = false
  6 state NetState
  7 debug_info bool = false
  8 input_shape BlobShape* deprecated
  100 layer LayerParameter*

SolverParameter
  enum SnapshotFormat HDF5=0 BINARYPROTO=1
  enum SolverMode CPU=0 GPU=1
  enum SolverType SGD=0 NESTEROV=1 ADAGRAD=2 RMSPROP=3 ADADELTA=4 ADAM=5
  1 train_net string
  2 test_net string*
  3 test_iter int32*
  4 test_interval int32 = 0
  5 base_lr float
  6 display int32
  7 max_iter int32
  8 lr_policy string
  9 gamma float
  10 power float
  11 momentum float
  12 weight_decay float
  13 stepsize int32
  14 snapshot int32 = 0
  15 snapshot_prefix string
  16 snapshot_diff bool = false
  17 solver_mode SolverMode = GPU
  18 device_id int32 = 0
  19 test_compute_loss bool = false
  20 random_seed int64 = -1
  21 train_net_param NetParameter
  22 test_net_param NetParameter*
  23 debug_info bool = false
  24 net string
  25 net_param NetParameter
  26 train_state NetState
  27 test_state NetState*
  28 snapshot_after_train bool = true
  29 regularization_type string = "L2"
  30 solver_type SolverType = SGD deprecated
  31 delta float = 1e-08
  32 test_initialization bool = true
  33 average_loss int32 = 1
  34 stepvalue int32*
  35 clip_gradients float = -1
  36 iter_size int32 = 1
  37 snapshot_format SnapshotFormat = BINARYPROTO
  38 rms_decay float = 0.99
  39 momentum2 float = 0.999
  40 type string = "SGD"
  41 layer_wise_reduce bool = true
  42 weights string*

SolverState
  1 iter int32
  2 learned_net string
  3 history BlobProto*
  4 current_step int32 = 0

enum Phase TRAIN=0 TEST=1

NetState
  1 phase Phase = TEST
  2 level int32 = 0
  3 stage string*

NetStateRule
  1 phase Phase
  2 min_level int32
  3 max_level int32
  4 stage string*
  5 not_stage string*

ParamSpec
  enum DimCheckMode STRICT=0 PERMISSIVE=1
  1 name string
  2 share_mode DimCheckMode
  3 lr_mult float = 1
  4 decay_mult float = 1

LayerParameter
  1 name string
  2 type string
  3 bottom string*
  4 top string*
  5 loss_weight float*
  6 param ParamSpec*
  7 blobs BlobProto*
  8 include NetStateRule*
  9 exclude NetStateRule*
  10 phase Phase
  11 propagate_down bool*
  100 transform_param TransformationParameter
  101 loss_param LossParameter
  102 accuracy_param AccuracyParameter
  103 argmax_param ArgMaxParameter
  104 concat_param ConcatParameter
  105 contrastive_loss_param ContrastiveLossParameter
  106 convolution_param ConvolutionParameter
  107 data_param DataParameter
  108 dropout_param DropoutParameter
  109 dummy_data_param DummyDataParameter
  110 eltwise_param EltwiseParameter
  111 exp_param ExpParameter
  112 hdf5_data_param HDF5DataParameter
  113 hdf5_output_param HDF5OutputParameter
  114 hinge_loss_param HingeLossParameter
  115 image_data_param ImageDataParameter
  116 infogain_loss_param InfogainLossParameter
  117 inner_product_param InnerProductParameter
  118 lrn_param LRNParameter
  119 memory_data_param MemoryDataParameter
  120 mvn_param MVNParameter
  121 pooling_param PoolingParameter
  122 power_param PowerParameter
  123 relu_param ReLUParameter
  124 sigmoid_param SigmoidParameter
  125 softmax_param SoftmaxParameter
  126 slice_param SliceParameter
  127 tanh_param TanHParameter
  128 threshold_param ThresholdParameter
  129 window_data_param WindowDataParameter
  130 python_param PythonParameter
  131 prelu_param PReLUParameter
  132 spp_param SPPParameter
  133 reshape_param ReshapeParameter
  134 log_param LogParameter
  135 flatten_param FlattenParameter
  136 reduction_param ReductionParameter
  137 embed_param EmbedParameter
  138 tile_param TileParameter
  139 batch_norm_param BatchNormParameter
  140 elu_param ELUParameter
  141 bias_param BiasParameter
  142 scale_param ScaleParameter
  143 input_param InputParameter
  144 crop_param CropParameter
  145 parameter_param ParameterParameter
  146 recurrent_param RecurrentParameter
  147 swish_param SwishParameter
  148 clip_param ClipParameter

TransformationParameter
  1 scale float = 1
  2 mirror bool = false
  3 crop_size uint32 = 0
  4 mean_file string
  5 mean_value float*
  6 force_color bool = false
  7 force_gray bool = false

LossParameter
  enum NormalizationMode FULL=0 VALID=1 BATCH_SIZE=2 NONE=3
  1 ignore_label int32
  2 normalize bool deprecated
  3 normalization NormalizationMode = VALID
"""
