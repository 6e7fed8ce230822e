"""Small modules with random weights for the tests of exports to PyTorch: architectures of transformers, and own modules.

Each module takes two tensors, of which the second one has the targets, and returns its loss.
"""
import importlib.util
import pathlib

import torch
import transformers as T

ROOT = pathlib.Path(__file__).resolve().parents[2]
BATCH, LENGTH, WORDS = 8, 16, 64


def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


own = load("own_models", ROOT / "tests/import/models.py")
wide = load("wide_models", ROOT / "tests/huggingface/models.py").wide


class Loss(torch.nn.Module):
    """A model of transformers that returns its loss alone."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, y):
        return self.model(x, labels=y).loss


SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
WITHOUT_DROPOUT = {name: 0.0 for name in ("attention_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop",
                                          "dropout", "residual_dropout", "embedding_dropout", "hidden_dropout_prob",
                                          "attention_probs_dropout_prob")}
TEXT = {"vocab_size": WORDS, "max_position_embeddings": 32, "use_cache": False, "pad_token_id": None, "bos_token_id": 1,
        "eos_token_id": 1}


def text(model, config, **more):
    return lambda: Loss(model(config(**{**SIZES, **TEXT, **WITHOUT_DROPOUT, **more})))


def layers(**blocks):
    return lambda: own.Transformer(**blocks, vocab=WORDS, width=32, length=LENGTH)


PAIRS = {"num_key_value_heads": 2}
ARCHITECTURES = {
    "gpt2": text(T.GPT2LMHeadModel, T.GPT2Config, n_positions=32),
    "llama": text(T.LlamaForCausalLM, T.LlamaConfig, **PAIRS),
    "mistral": text(T.MistralForCausalLM, T.MistralConfig, **PAIRS, sliding_window=None),
    "qwen2": text(T.Qwen2ForCausalLM, T.Qwen2Config, **PAIRS),
    "qwen3": text(T.Qwen3ForCausalLM, T.Qwen3Config, **PAIRS, head_dim=8),
    "gemma": text(T.GemmaForCausalLM, T.GemmaConfig, **PAIRS, head_dim=8),
    "gemma2": text(T.Gemma2ForCausalLM, T.Gemma2Config, **PAIRS, head_dim=8, sliding_window=64),
    "phi": text(T.PhiForCausalLM, T.PhiConfig),
    "phi3": text(T.Phi3ForCausalLM, T.Phi3Config, **PAIRS),
    "gpt_neox": text(T.GPTNeoXForCausalLM, T.GPTNeoXConfig),
    "falcon": text(T.FalconForCausalLM, T.FalconConfig, multi_query=False, parallel_attn=False, alibi=False),
    "olmo": text(T.OlmoForCausalLM, T.OlmoConfig),
    "olmo2": text(T.Olmo2ForCausalLM, T.Olmo2Config),
    "stablelm": text(T.StableLmForCausalLM, T.StableLmConfig, **PAIRS),
    "starcoder2": text(T.Starcoder2ForCausalLM, T.Starcoder2Config, **PAIRS),
    "granite": text(T.GraniteForCausalLM, T.GraniteConfig, **PAIRS),
    "smollm3": text(T.SmolLM3ForCausalLM, T.SmolLM3Config, **PAIRS),
    "distilbert": text(T.DistilBertForMaskedLM, T.DistilBertConfig, dim=32, hidden_dim=48, n_layers=2, n_heads=4),
    "vit": text(T.ViTForImageClassification, T.ViTConfig, image_size=16, patch_size=4, num_labels=8),
    "own_manual": layers(block=lambda: own.ManualBlock(32, 4, LENGTH)),
    "own_tied": layers(block=lambda: own.ManualBlock(32, 4, LENGTH), tied=True),
    "own_fused": layers(block=lambda: own.FusedBlock(32, 4)),
    "own_deep": layers(block=lambda: own.ManualBlock(32, 4, LENGTH), layers=4),
    "own_mixer": lambda: own.Mixer(width=16, classes=8),
}


def make(name, dtype=torch.float32):
    torch.manual_seed(0)
    return ARCHITECTURES[name]().train().to(dtype)


def batch(name, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    if name in ("vit", "own_mixer"):
        side = 8 if name == "own_mixer" else 16
        images = torch.randn(BATCH, 3, side, side, generator=generator).to(dtype)
        return images, torch.randint(0, 8, (BATCH,), generator=generator)
    return tuple(torch.randint(2, WORDS, (BATCH, LENGTH), generator=generator) for _ in range(2))
