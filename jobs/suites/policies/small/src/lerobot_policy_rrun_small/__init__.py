"""A plugin of lerobot for tests: with RRUN_SMALL_PI05=1, pi0.5 has 8 million weights instead of 3 billion.

lerobot knows two sizes of pi0.5, and both are too large to be made and evaluated in a test. Nothing but widths and depths changes.
"""

import os


def make_pi05_small():
    from lerobot.policies.pi05 import modeling_pi05 as pi05

    config, model = pi05.GemmaConfig, pi05.PaliGemmaForConditionalGenerationWithPiGemma

    def small_gemma(variant):
        width = {"gemma_2b": 64, "gemma_300m": 32}[variant]
        return config(width=width, depth=2, mlp_dim=2 * width, num_heads=4, num_kv_heads=1, head_dim=16)

    def small_paligemma(config):
        vision = config.vision_config
        vision.hidden_size, vision.intermediate_size, vision.num_hidden_layers, vision.num_attention_heads = 32, 64, 2, 4
        vision.projection_dim = config.text_config.hidden_size
        config.text_config.vocab_size = 1024
        return model(config=config)

    pi05.get_gemma_config = small_gemma
    pi05.PaliGemmaForConditionalGenerationWithPiGemma = small_paligemma


if os.environ.get("RRUN_SMALL_PI05") == "1":
    make_pi05_small()
