"""Fields that widely used forks of Caffe added, by fork; see `notation` for how to read this.

`ssd`, the default, is the SSD branch together with the additions that models made for it carry (depthwise and
shuffling nets, converted YOLO and segmentation nets, the R-CNN family). Numbers are those of the forks, so that their
caffemodels load, except where a number is taken by Caffe 1.0 itself:

- SolverParameter 41 and 42 (`eval_type`, `ap_version` there, `layer_wise_reduce` and `weights` here). Solvers are
  only ever stored as text, so those two have numbers of our own.
- `interp_param` (143 in PSPNet and DeepLab) is `input_param` here; it has 2143, and `ceil_mode` (13 in forks with
  pull request 3057) is `round_mode` here; it has 1013. To read caffemodels that carry the fork's own number, use
  `fork="pspnet"`.

The other forks split off before Caffe 1.0 gave their numbers to something else. What it has under them is moved
(`-`) to numbers of our own, so that a prototxt may use both.
"""

_DETECTION = """
LayerParameter
  200 annotated_data_param AnnotatedDataParameter
  201 multibox_loss_param MultiBoxLossParameter
  202 permute_param PermuteParameter
  203 prior_box_param PriorBoxParameter
  204 detection_output_param DetectionOutputParameter
  205 detection_evaluate_param DetectionEvaluateParameter
  206 norm_param NormalizeParameter
  207 video_data_param VideoDataParameter

LabelMapItem
  1 name string
  2 label int32
  3 display_name string

LabelMap
  1 item LabelMapItem*

Sampler
  1 min_scale float = 1
  2 max_scale float = 1
  3 min_aspect_ratio float = 1
  4 max_aspect_ratio float = 1

SampleConstraint
  1 min_jaccard_overlap float
  2 max_jaccard_overlap float
  3 min_sample_coverage float
  4 max_sample_coverage float
  5 min_object_coverage float
  6 max_object_coverage float

BatchSampler
  1 use_original_image bool = true
  2 sampler Sampler
  3 sample_constraint SampleConstraint
  4 max_sample uint32
  5 max_trials uint32 = 100

EmitConstraint
  enum EmitType CENTER=0 MIN_OVERLAP=1
  1 emit_type EmitType = CENTER
  2 emit_overlap float

NormalizedBBox
  1 xmin float
  2 ymin float
  3 xmax float
  4 ymax float
  5 label int32
  6 difficult bool
  7 score float
  8 size float

Annotation
  1 instance_id int32 = 0
  2 bbox NormalizedBBox

AnnotationGroup
  1 group_label int32
  2 annotation Annotation*

AnnotatedDatum
  enum AnnotationType BBOX=0
  1 datum Datum
  2 type AnnotationType
  3 annotation_group AnnotationGroup*

ResizeParameter
  enum Resize_mode WARP=1 FIT_SMALL_SIZE=2 FIT_LARGE_SIZE_AND_PAD=3
  enum Pad_mode CONSTANT=1 MIRRORED=2 REPEAT_NEAREST=3
  enum Interp_mode LINEAR=1 AREA=2 NEAREST=3 CUBIC=4 LANCZOS4=5
  1 prob float = 1
  2 resize_mode Resize_mode = WARP
  3 height uint32 = 0
  4 width uint32 = 0
  5 pad_mode Pad_mode = CONSTANT
  6 pad_value float*
  7 interp_mode Interp_mode*
  8 height_scale uint32 = 0
  9 width_scale uint32 = 0

SaltPepperParameter
  1 fraction float = 0
  2 value float*

NoiseParameter
  1 prob float = 0
  2 hist_eq bool = false
  3 inverse bool = false
  4 decolorize bool = false
  5 gauss_blur bool = false
  6 jpeg float = -1
  7 posterize bool = false
  8 erode bool = false
  9 saltpepper bool = false
  10 saltpepper_param SaltPepperParameter
  11 clahe bool = false
  12 convert_to_hsv bool = false
  13 convert_to_lab bool = false

DistortionParameter
  1 brightness_prob float = 0
  2 brightness_delta float = 0
  3 contrast_prob float = 0
  4 contrast_lower float = 0
  5 contrast_upper float = 0
  6 hue_prob float = 0
  7 hue_delta float = 0
  8 saturation_prob float = 0
  9 saturation_lower float = 0
  10 saturation_upper float = 0
  11 random_order_prob float = 0

ExpansionParameter
  1 prob float = 1
  2 max_expand_ratio float = 1

AnnotatedDataParameter
  1 batch_sampler BatchSampler*
  2 label_map_file string
  3 anno_type AnnotatedDatum.AnnotationType

DetectionEvaluateParameter
  1 num_classes uint32
  2 background_label_id uint32 = 0
  3 overlap_threshold float = 0.5
  4 evaluate_difficult_gt bool = true
  5 name_size_file string
  6 resize_param ResizeParameter

NonMaximumSuppressionParameter
  1 nms_threshold float = 0.3
  2 top_k int32
  3 eta float = 1

SaveOutputParameter
  1 output_directory string
  2 output_name_prefix string
  3 output_format string
  4 label_map_file string
  5 name_size_file string
  6 num_test_image uint32
  7 resize_param ResizeParameter

DetectionOutputParameter
  1 num_classes uint32
  2 share_location bool = true
  3 background_label_id int32 = 0
  4 nms_param NonMaximumSuppressionParameter
  5 save_output_param SaveOutputParameter
  6 code_type PriorBoxParameter.CodeType = CORNER
  7 keep_top_k int32 = -1
  8 variance_encoded_in_target bool = false
  9 confidence_threshold float
  10 visualize bool = false
  11 visualize_threshold float
  12 save_file string

MultiBoxLossParameter
  enum LocLossType L2=0 SMOOTH_L1=1
  enum ConfLossType SOFTMAX=0 LOGISTIC=1
  enum MatchType BIPARTITE=0 PER_PREDICTION=1
  enum MiningType NONE=0 MAX_NEGATIVE=1 HARD_EXAMPLE=2
  1 loc_loss_type LocLossType = SMOOTH_L1
  2 conf_loss_type ConfLossType = SOFTMAX
  3 loc_weight float = 1
  4 num_classes uint32
  5 share_location bool = true
  6 match_type MatchType = PER_PREDICTION
  7 overlap_threshold float = 0.5
  8 use_prior_for_matching bool = true
  9 background_label_id uint32 = 0
  10 use_difficult_gt bool = true
  11 do_neg_mining bool
  12 neg_pos_ratio float = 3
  13 neg_overlap float = 0.5
  14 code_type PriorBoxParameter.CodeType = CORNER
  16 encode_variance_in_target bool = false
  17 map_object_to_agnostic bool = false
  18 ignore_cross_boundary_bbox bool = false
  19 bp_inside bool = false
  20 mining_type MiningType = MAX_NEGATIVE
  21 nms_param NonMaximumSuppressionParameter
  22 sample_size int32 = 64
  23 use_prior_for_nms bool = false

NormalizeParameter
  1 across_spatial bool = true
  2 scale_filler FillerParameter
  3 channel_shared bool = true
  4 eps float = 1e-10

PermuteParameter
  1 order uint32*

PriorBoxParameter
  enum CodeType CORNER=1 CENTER_SIZE=2 CORNER_SIZE=3
  1 min_size float*
  2 max_size float*
  3 aspect_ratio float*
  4 flip bool = true
  5 clip bool = false
  6 variance float*
  7 img_size uint32
  8 img_h uint32
  9 img_w uint32
  10 step float
  11 step_h float
  12 step_w float
  13 offset float = 0.5

VideoDataParameter
  enum VideoType WEBCAM=0 VIDEO=1
  1 video_type VideoType = WEBCAM
  2 device_id int32 = 0
  3 video_file string
  4 skip_frames uint32 = 0
"""

_REGIONS = """
LayerParameter
  10002 psroi_pooling_param PSROIPoolingParameter
  8266711 roi_pooling_param ROIPoolingParameter
  8266712 smooth_l1_loss_param SmoothL1LossParameter

DropoutParameter
  2 scale_train bool = true

PSROIPoolingParameter
  1 spatial_scale float!
  2 output_dim int32!
  3 group_size int32!

ROIPoolingParameter
  1 pooled_h uint32 = 0
  2 pooled_w uint32 = 0
  3 spatial_scale float = 1

SmoothL1LossParameter
  1 sigma float = 1
"""

SSD = (
    _DETECTION
    + _REGIONS
    + """
LayerParameter
  149 upsample_param UpsampleParameter
  164 shuffle_channel_param ShuffleChannelParameter
  2143 interp_param InterpParameter
  100000 relu6_param ReLU6Parameter

SolverParameter
  43 plateau_winsize int32*
  44 show_per_class_result bool = false
  1041 eval_type string = "classification"
  1042 ap_version string = "Integral"

SolverState
  5 minimum_loss float = 1e38
  6 iter_last_event int32 = 0

TransformationParameter
  8 resize_param ResizeParameter
  9 noise_param NoiseParameter
  10 emit_constraint EmitConstraint
  11 crop_h uint32 = 0
  12 crop_w uint32 = 0
  13 distort_param DistortionParameter
  14 expand_param ExpansionParameter

PoolingParameter
  1013 ceil_mode bool = true

UpsampleParameter
  1 scale uint32 = 1
  2 scale_h uint32
  3 scale_w uint32
  4 pad_out_h bool = false
  5 pad_out_w bool = false
  6 upsample_h uint32
  7 upsample_w uint32

ShuffleChannelParameter
  1 group uint32 = 1

InterpParameter
  1 height int32 = 0
  2 width int32 = 0
  3 zoom_factor int32 = 1
  4 shrink_factor int32 = 1
  5 pad_beg int32 = 0
  6 pad_end int32 = 0

ReLU6Parameter
  1 negative_slope float = 0
"""
)

PSPNET = """
LayerParameter
  - input_param 1000143
  - crop_param 1000144
  - parameter_param 1000145
  - recurrent_param 1000146
  - swish_param 1000147
  - clip_param 1000148
  143 interp_param InterpParameter
  144 seg_accuracy_param SegAccuracyParameter
  152 bn_param BNParameter

BatchNormParameter
  4 update_global_stats bool = false

BNParameter
  enum Engine DEFAULT=0 CAFFE=1 CUDNN=2
  1 slope_filler FillerParameter
  2 bias_filler FillerParameter
  3 momentum float = 0.9
  4 eps float = 1e-5
  5 frozen bool = false
  6 engine Engine = DEFAULT

ImageDataParameter
  enum LabelType NONE=0 IMAGE=1 PIXEL=2
  15 ignore_label int32 = 255
  16 label_type LabelType = IMAGE

InterpParameter
  1 height int32 = 0
  2 width int32 = 0
  3 zoom_factor int32 = 1
  4 shrink_factor int32 = 1
  5 pad_beg int32 = 0
  6 pad_end int32 = 0

SegAccuracyParameter
  enum AccuracyMetric PixelAccuracy=0 ClassAccuracy=1 PixelIOU=2
  1 metric AccuracyMetric = PixelAccuracy
  2 ignore_label int32*
  3 reset bool = true

TransformationParameter
  8 scale_factors float*
  9 crop_width uint32 = 0
  10 crop_height uint32 = 0
"""

SEGNET = """
LayerParameter
  - embed_param 1000137
  - tile_param 1000138
  45 bn_param BNParameter
  137 upsample_param UpsampleParameter
  138 dense_image_data_param DenseImageDataParameter

BNParameter
  enum BNMode LEARN=0 INFERENCE=1
  1 scale_filler FillerParameter
  2 shift_filler FillerParameter
  3 bn_mode BNMode = LEARN

DenseImageDataParameter
  1 source string
  2 batch_size uint32
  3 rand_skip uint32 = 0
  4 shuffle bool = false
  5 new_height uint32 = 0
  6 new_width uint32 = 0
  7 is_color bool = true
  8 mean_file string
  9 root_folder string = ""
  10 mirror bool = false
  11 crop_width uint32 = 0
  12 crop_height uint32 = 0

DropoutParameter
  2 sample_weights_test bool = false

LossParameter
  - normalization 1000003
  3 weight_by_label_freqs bool = false
  4 class_weighting float*

UpsampleParameter
  1 scale uint32 = 2
  2 scale_h uint32
  3 scale_w uint32
  4 pad_out_h bool = false
  5 pad_out_w bool = false
  6 upsample_h uint32
  7 upsample_w uint32
"""

NVIDIA = (
    _DETECTION
    + """
enum Type DOUBLE=0 FLOAT=1 FLOAT16=2 INT=3 UINT=4 BOOL=5

BlobProto
  10 raw_data_type Type
  11 raw_diff_type Type
  12 raw_data bytes
  13 raw_diff bytes

NetParameter
  11 default_forward_type Type = FLOAT
  12 default_backward_type Type = FLOAT
  13 default_forward_math Type = FLOAT
  14 default_backward_math Type = FLOAT
  15 global_grad_scale float = 1
  16 global_grad_scale_adaptive bool = false
  17 default_conv_algos_override string = "-1,-1,-1"
  18 reduce_buckets int32 = 6
  19 default_cudnn_math_override int32 = -1
  20 eltwise_mem_sharing bool = true

LayerParameter
  - parameter_param 1000145
  - recurrent_param
  - swish_param 1000147
  - clip_param 1000148
  145 forward_type Type = FLOAT
  146 backward_type Type = FLOAT
  147 forward_math Type = FLOAT
  148 backward_math Type = FLOAT
  149 debug bool = false
  150 cudnn_math_override int32 = -1
  151 recurrent_param RecurrentParameter

BatchNormParameter
  5 scale_filler FillerParameter
  6 bias_filler FillerParameter
  7 scale_bias bool = false

SolverParameter
  - layer_wise_reduce 1000041
  - weights 1000042
  41 rampup_interval int32 = 0
  42 rampup_lr float = 0
  43 min_lr float = 0
  44 solver_data_type Type = FLOAT
  45 store_blobs_in_old_format bool = false
  46 momentum_policy string = "fixed"
  47 max_momentum float = 0.99
  48 momentum_power float = 1
  49 larc bool = false
  50 larc_policy string = "scale"
  51 larc_eta float = 0.001
  52 weight_decay_policy string = "fixed"
  53 weight_decay_power float = 1
  54 test_and_snapshot_last_epochs int32 = 0
  55 larc_turbo bool = false
  56 max_weight_decay float = 0

TransformationParameter
  8 use_gpu_transform bool = false
  9 random_seed int64 = -1
  10 img_rand_resize_lower uint32 = 0
  11 img_rand_resize_upper uint32 = 0
  12 rand_resize_ratio_lower float = 0
  13 rand_resize_ratio_upper float = 0
  14 vertical_stretch_lower float = 1
  15 vertical_stretch_upper float = 1
  16 horizontal_stretch_lower float = 1
  17 horizontal_stretch_upper float = 1
  20 allow_upscale bool = false
  22 display bool = false
  23 num_labels int32 = 0
  208 resize_param ResizeParameter
  209 noise_param NoiseParameter
  210 emit_constraint EmitConstraint
  211 crop_h uint32 = 0
  212 crop_w uint32 = 0
  213 distort_param DistortionParameter
  214 expand_param ExpansionParameter
"""
)

FORKS = {
    "ssd": SSD,
    "pspnet": PSPNET,
    "segnet": SEGNET,
    "fast-rcnn": _REGIONS,
    "nvidia": NVIDIA,
}
