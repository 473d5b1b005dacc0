"""Keys that AlexeyAB's fork added to the sections of the 2018 program, and what they would change.

A key at a value that changes nothing is accepted. Any other value is told: an error where the network's output
would differ, a warning where only training would, or where the loss would differ, an error as soon as the network is
trained. Nothing is ignored in silence, except keys that only steer what the fork prints or draws. Keys that are
followed stand among the options of their section, marked `fork=True`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from undertow.darknet.files.cfg import Section


class Effect(Enum):
    """What a key changes; the value completes the sentence `it changes ...`."""

    OUTPUT = "what the network computes"
    TRAINING = "training only"
    LOSS = "training only (the loss)"
    DISPLAY = "what is printed or drawn"


@dataclass(frozen=True)
class ForkKey:
    """neutral: the values that change nothing; numbers are compared as numbers, "*" is any value, "@key" the value
    of another key of the same section.
    """

    effect: Effect
    neutral: tuple[str, ...]

    def is_neutral(self, value: str, section: Section) -> bool:
        """Whether the key may as well be left out."""
        return self.effect is Effect.DISPLAY or any(_matches(value, other, section) for other in self.neutral)

    def is_everywhere(self, value: str, section: Section) -> bool:
        """Whether cfgs of the 2018 program have this too: keys of its recurrent layers from before 2018."""
        return section.name in ("rnn", "crnn") and self.is_neutral(value, section)


def _matches(value: str, other: str, section: Section) -> bool:
    if other.startswith("@"):
        entry = section.find(other[1:])
        other = (entry.value if entry is not None else None) or "1"
    if other in ("*", value):
        return True
    try:
        return float(value) == float(other)
    except ValueError:
        return False


def _keys(effect: Effect, **neutral: str) -> dict[str, ForkKey]:
    """Several keys of one effect; neutral values are separated by blanks."""
    return {name: ForkKey(effect, tuple(values.split())) for name, values in neutral.items()}


# Understood in every section after [net].
COMMON = _keys(Effect.TRAINING, train_only_bn="0", dont_update="0", burnin_update="0") | _keys(
    Effect.DISPLAY, stream="", wait_stream=""
)

NET = (
    _keys(
        Effect.TRAINING, mosaic="0", cutmix="0", mixup="0", blur="0", gaussian_noise="0", mosaic_bound="0",
        label_smooth_eps="0", ema_alpha="0", adversarial_lr="0", attention="0", contrastive="0", unsupervised="0",
        contrastive_jit_flip="0", contrastive_color="0", sequential_subdivisions="@subdivisions", seq_scales="",
        augment_speed="2", dynamic_minibatch="0", loss_scale="1", try_fix_nan="0", weights_reject_freq="0",
        equidistant_point="0", badlabels_rejection_percentage="0", num_sigmas_reject_badlabels="0",
        resize_step="32", track="0",
    )
    | _keys(
        Effect.DISPLAY, max_chart_loss="", show_receptive_field="", optimized_memory="", workspace_size_limit_MB="",
        use_cuda_graph="",
    )
)  # fmt: skip

_HEAD_TRAINING = _keys(Effect.TRAINING, resize="1") | _keys(Effect.LOSS, focal_loss="0")

_YOLO = (
    _keys(
        Effect.LOSS, iou_loss="mse", iou_normalizer="1", cls_normalizer="1", obj_normalizer="1", iou_thresh="1",
        delta_normalizer="1", iou_thresh_kind="iou", label_smooth_eps="0", objectness_smooth="0", max_delta="",
        counters_per_class="", embedding_layer="999999",
    )
    | _keys(
        Effect.DISPLAY, show_details="", track_history_size="", sim_thresh="", dets_for_track="", dets_for_show="",
        track_ciou_norm="",
    )
    | _HEAD_TRAINING
)  # fmt: skip

# By the section's full name; sections without an entry have no keys of their own in the fork. bin_output leaves out the
# activation before an xnor layer, which reads the signs only.
BY_SECTION: dict[str, dict[str, ForkKey]] = {
    "net": NET,
    "convolutional": _keys(
        Effect.OUTPUT, sway="0", rotate="0", stretch="0", stretch_sway="0", reverse="0", coordconv="0", bin_output="*"
    )
    | _keys(Effect.TRAINING, grad_centr="0", angle="15", assisted_excitation="0"),
    "maxpool": _keys(Effect.OUTPUT, maxpool_zero_nonmax="0"),
    "dropout": _keys(Effect.TRAINING, dropblock="0", dropblock_size_rel="0", dropblock_size_abs="0"),
    "rnn": _keys(Effect.OUTPUT, hidden="@output", logistic="0"),
    "crnn": _keys(Effect.OUTPUT, xnor="0"),
    "conv_lstm": _keys(Effect.OUTPUT, xnor="0", bottleneck="0", shortcut="0", lstm_activation="tanh")
    | _keys(Effect.TRAINING, time_normalizer="1"),
    "yolo": _YOLO,
    "Gaussian_yolo": _YOLO | _keys(Effect.LOSS, uc_normalizer="1"),
    "region": _HEAD_TRAINING,
    "detection": _keys(Effect.TRAINING, resize="1"),
}  # fmt: skip

# Section types of the fork that nothing reads, so that a message can say where they come from.
SECTIONS = ("contrastive",)
