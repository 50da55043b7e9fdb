"""Makes small lerobot checkpoints with random weights, offline: `make.py FOLDER` in a venv with lerobot.

    act, diffusion, smolvla, pi05   for PushT, with the features that lerobot gives to gym-pusht
    act_table_top                   for the built-in table-top tasks
    vlm, tokenizer                  what smolvla and pi05 would load from the Hugging Face hub

The weights follow from fixed seeds. Configurations, statistics and processors are written by lerobot.
"""

import os
import shutil
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["RRUN_SMALL_PI05"] = "1"

import torch  # noqa: E402
from lerobot.configs.types import FeatureType, PolicyFeature  # noqa: E402
from lerobot.policies.act.configuration_act import ACTConfig  # noqa: E402
from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig  # noqa: E402
from lerobot.policies.factory import get_policy_class, make_pre_post_processors  # noqa: E402
from lerobot.policies.pi05.configuration_pi05 import PI05Config  # noqa: E402
from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig  # noqa: E402
from lerobot.utils.import_utils import register_third_party_plugins  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402
from transformers import PreTrainedTokenizerFast, SmolVLMConfig, SmolVLMImageProcessor, SmolVLMProcessor, SmolVLMVideoProcessor  # noqa: E402

PUSHT = {
    "observation.image": (FeatureType.VISUAL, (3, 96, 96)),
    "observation.state": (FeatureType.STATE, (2,)),
}
TABLE_TOP = {
    "observation.images.front": (FeatureType.VISUAL, (3, 96, 96)),
    "observation.images.wrist": (FeatureType.VISUAL, (3, 96, 96)),
    "observation.state": (FeatureType.STATE, (9,)),  # 7 joints and 2 fingers
}
IMAGE_TOKENS = {"image_token": "<image>", "fake_image_token": "<fake_token_around_image>", "global_image_token": "<global-img>"}


def features(described, actions):
    inputs = {name: PolicyFeature(type=kind, shape=shape) for name, (kind, shape) in described.items()}
    return {"input_features": inputs, "output_features": {"action": PolicyFeature(type=FeatureType.ACTION, shape=(actions,))}, "device": "cpu"}


def statistics(described, actions, low, high):
    """Statistics as a dataset has them, so that actions are spread between `low` and `high`."""
    sizes = {"observation.state": described["observation.state"][1][0], "action": actions}
    middle, spread = (low + high) / 2, (high - low) / 4
    values = {"min": low, "max": high, "mean": middle, "std": spread, "q01": low, "q99": high}
    stats = {name: {key: torch.full((size,), float(value)) for key, value in values.items()} for name, size in sizes.items()}
    for name, (kind, _) in described.items():
        if kind is FeatureType.VISUAL:
            channels = {"mean": 0.5, "std": 0.25, "min": 0.0, "max": 1.0, "q01": 0.0, "q99": 1.0}
            stats[name] = {key: torch.full((3, 1, 1), value) for key, value in channels.items()}
    return stats


def make_tokenizer(folder):
    """A tokenizer of words, which the hub need not be asked for."""
    words = ["<unk>", "<pad>", "<s>", "</s>", *IMAGE_TOKENS.values(), "<end_of_utterance>", "\n"]
    words += ["push", "the", "T", "onto", "its", "outline", "Task", "State", "Action", ":", ",", ";", *map(str, range(257))]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "extra_special_tokens": IMAGE_TOKENS}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
    fast.save_pretrained(folder)
    return fast


def make_vlm(folder, tokenizer):
    """The configuration and the processor of a small SmolVLM; SmolVLA's checkpoint has its weights."""
    text = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    text |= {"num_key_value_heads": 2, "head_dim": 16, "vocab_size": len(tokenizer), "pad_token_id": 1}
    vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 96, "patch_size": 16}
    SmolVLMConfig(text_config=text, vision_config=vision, scale_factor=2, image_token_id=4, pad_token_id=1).save_pretrained(folder)
    SmolVLMProcessor(SmolVLMImageProcessor(), tokenizer, SmolVLMVideoProcessor(), chat_template="").save_pretrained(folder)


def save(folder, config, stats):
    torch.manual_seed(7)
    shutil.rmtree(folder, ignore_errors=True)
    policy = get_policy_class(config.type)(config)
    policy.eval()
    policy.save_pretrained(folder)
    for processor in make_pre_post_processors(config, dataset_stats=stats):
        processor.save_pretrained(folder)
    millions = sum(weights.numel() for weights in policy.parameters()) / 1e6
    print(f"{folder.name}: {millions:.1f} million weights", flush=True)


def main(root):
    root = Path(root).absolute()
    root.mkdir(parents=True, exist_ok=True)
    register_third_party_plugins()
    tokenizer = make_tokenizer(root / "tokenizer")
    make_vlm(root / "vlm", tokenizer)
    pusht, stats = features(PUSHT, 2), statistics(PUSHT, 2, 0, 512)
    small = {"dim_model": 64, "n_heads": 4, "dim_feedforward": 128, "n_encoder_layers": 2, "n_vae_encoder_layers": 1, "latent_dim": 8}
    act = {**small, "pretrained_backbone_weights": None}
    save(root / "act", ACTConfig(**pusht, **act, chunk_size=32, n_action_steps=8), stats)
    diffusion = {"down_dims": (32, 64), "diffusion_step_embed_dim": 32, "num_train_timesteps": 10, "crop_shape": (84, 84), "n_action_steps": 8}
    save(root / "diffusion", DiffusionConfig(**pusht, **diffusion, horizon=16, pretrained_backbone_weights=None), stats)
    smolvla = {"vlm_model_name": str(root / "vlm"), "resize_imgs_with_padding": (96, 96), "num_vlm_layers": 2, "n_action_steps": 10}
    save(root / "smolvla", SmolVLAConfig(**pusht, **smolvla), stats)
    with tokenizer_of_pi05(root / "tokenizer"):
        save(root / "pi05", PI05Config(**pusht, image_resolution=(56, 56), n_action_steps=10), stats)
    table_top = features(TABLE_TOP, 7), statistics(TABLE_TOP, 7, -1, 1)
    save(root / "act_table_top", ACTConfig(**table_top[0], **act, chunk_size=32, n_action_steps=8), table_top[1])


class tokenizer_of_pi05:
    """lerobot names PaliGemma's tokenizer, which only the hub has; another is written into the checkpoint's processor."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __enter__(self):
        from lerobot.policies.pi05 import processor_pi05

        self.module, self.step = processor_pi05, processor_pi05.TokenizerProcessorStep
        self.module.TokenizerProcessorStep = lambda **arguments: self.step(**{**arguments, "tokenizer_name": self.folder})

    def __exit__(self, *error):
        self.module.TokenizerProcessorStep = self.step


if __name__ == "__main__":
    main(*sys.argv[1:])
