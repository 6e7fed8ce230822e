"""Small random models of `transformers`, their inputs, and losses with gradients as they compute them.

Nothing is downloaded. transformers computes some parts in float32 whatever the dtype of the model (norms, softmax, the
tables of rotary positions); within `wide()` these are float64 too, so that models in float64 can be compared to all digits.
"""
import contextlib
import dataclasses
import os
import sys
import typing

import torch
import transformers
from transformers.models.deepseek_v3 import modeling_deepseek_v3
from transformers.models.glm4_moe import modeling_glm4_moe

ALL_CASES = "TESSERA_ALL_CASES" in os.environ  # the slow tests
SEQ, VOCAB, BATCH, SOURCE, MASKED, CLASSES, IMAGE = 12, 37, 4, 10, 2, 5, 8


@dataclasses.dataclass
class Case:
    name: str
    make: typing.Callable  # the class of the model
    config: typing.Callable  # () -> configuration
    kind: str = "text"  # of inputs: text, masked, image, pair
    keys: str = ""  # of our model, beside those of config.json
    further: int = 0  # depths of multi-token prediction


def decoder(cls, **keys):
    common = dict(vocab_size=VOCAB, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                  num_key_value_heads=2, max_position_embeddings=SEQ, bos_token_id=1, eos_token_id=2, pad_token_id=None)
    return lambda: cls(**{**common, **keys})


def encoder(cls, **keys):
    return lambda: cls(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, hidden_dropout_prob=0,
                       attention_probs_dropout_prob=0, **keys)


def gpt2(**keys):
    return lambda: transformers.GPT2Config(vocab_size=VOCAB, n_positions=SEQ, n_embd=16, n_layer=2, n_head=4, resid_pdrop=0,
                                           embd_pdrop=0, attn_pdrop=0, bos_token_id=1, eos_token_id=2, **keys)


def t5(**keys):
    return lambda: transformers.T5Config(vocab_size=VOCAB, d_model=16, d_kv=6, d_ff=24, num_layers=2, num_heads=4,
                                         relative_attention_num_buckets=8, relative_attention_max_distance=10, dropout_rate=0,
                                         **keys)


def predicting(causal, layer_class, norm_class):
    """A class of transformers with the layers that predict further tokens, which transformers leaves out: arXiv 2412.19437, section
    2.2, formulas 21 to 24, with the names of the published arrays. A depth begins with the normed stream that the head of the depth
    before it reads."""
    class Predicting(causal):
        def __init__(self, config):
            super().__init__(config)
            for depth in range(config.num_nextn_predict_layers):
                layer, width = layer_class(config, config.num_hidden_layers + depth), config.hidden_size
                layer.enorm, layer.hnorm, layer.shared_head = norm_class(width), norm_class(width), torch.nn.Module()
                layer.shared_head.norm = norm_class(width)
                for norm in (layer.enorm, layer.hnorm, layer.shared_head.norm):
                    norm.variance_epsilon = config.rms_norm_eps
                layer.eh_proj = torch.nn.Linear(2 * width, width, bias=False)
                self.model.layers.append(layer.apply(self._init_weights))

        def further_logits(self, inputs):
            model = self.model
            stream = model(inputs["tokens"]).last_hidden_state
            positions = torch.arange(stream.shape[1])[None]
            mask = transformers.masking_utils.create_causal_mask(
                config=self.config, inputs_embeds=stream, attention_mask=None, past_key_values=None, position_ids=positions)
            for depth, layer in enumerate(model.layers[self.config.num_hidden_layers:]):
                token = model.embed_tokens(inputs[f"targets_{depth}" if depth else "targets"])
                joined = layer.eh_proj(torch.cat((layer.enorm(token), layer.hnorm(stream)), dim=-1))
                stream = layer(joined, attention_mask=mask, position_ids=positions,
                               position_embeddings=model.rotary_emb(joined, positions))
                stream = layer.shared_head.norm(stream)
                yield self.lm_head(stream)
    Predicting.__name__ = causal.__name__
    return Predicting


PREDICTING_DEEPSEEK = predicting(transformers.DeepseekV3ForCausalLM, modeling_deepseek_v3.DeepseekV3DecoderLayer,
                                 modeling_deepseek_v3.DeepseekV3RMSNorm)
PREDICTING_GLM = predicting(transformers.Glm4MoeForCausalLM, modeling_glm4_moe.Glm4MoeDecoderLayer, modeling_glm4_moe.Glm4MoeRMSNorm)
LENGTHS = f"seq={SEQ},source={SOURCE}"
T = transformers
CASES = [
    Case("gpt2", T.GPT2LMHeadModel, gpt2()),
    Case("gpt2_gelu", T.GPT2LMHeadModel, gpt2(activation_function="gelu", n_inner=40)),
    Case("llama", T.LlamaForCausalLM, decoder(T.LlamaConfig, rope_theta=5e4, rms_norm_eps=1e-5)),
    Case("llama_bias", T.LlamaForCausalLM, decoder(T.LlamaConfig, attention_bias=True, head_dim=6, tie_word_embeddings=True)),
    Case("llama_scaled", T.LlamaForCausalLM,
         decoder(T.LlamaConfig, head_dim=16,
                 rope_parameters={"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0,
                                  "high_freq_factor": 4.0, "original_max_position_embeddings": 64})),
    Case("mistral", T.MistralForCausalLM, decoder(T.MistralConfig, sliding_window=5)),
    Case("mixtral", T.MixtralForCausalLM,
         decoder(T.MixtralConfig, num_local_experts=4, num_experts_per_tok=2, router_aux_loss_coef=0.0)),
    Case("mixtral_top1", T.MixtralForCausalLM, decoder(T.MixtralConfig, num_local_experts=4, num_experts_per_tok=1)),
    Case("qwen2", T.Qwen2ForCausalLM, decoder(T.Qwen2Config, tie_word_embeddings=True)),
    Case("qwen2_windows", T.Qwen2ForCausalLM,
         decoder(T.Qwen2Config, use_sliding_window=True, sliding_window=5, max_window_layers=0)),
    Case("qwen3", T.Qwen3ForCausalLM, decoder(T.Qwen3Config, head_dim=6)),
    Case("phi3", T.Phi3ForCausalLM, decoder(T.Phi3Config, sliding_window=5)),
    # 4 query heads of 6 elements, of which positions turn 4
    Case("phi4", T.Phi3ForCausalLM, decoder(T.Phi3Config, hidden_size=24, num_attention_heads=3, num_key_value_heads=1,
                                            tie_word_embeddings=True,
                                            rope_parameters={"rope_type": "default", "rope_theta": 1e4,
                                                             "partial_rotary_factor": 0.75})),
    Case("phi4_long", T.Phi3ForCausalLM, decoder(T.Phi3Config, hidden_size=24, num_attention_heads=3, num_key_value_heads=1,
                                                 original_max_position_embeddings=8,
                                                 rope_parameters={"rope_type": "longrope", "rope_theta": 1e4,
                                                                  "partial_rotary_factor": 0.75,
                                                                  "short_factor": [1.0, 1.1, 1.25],
                                                                  "long_factor": [1.0800000429153442, 2.25, 6.125],
                                                                  "original_max_position_embeddings": 8})),
    Case("olmo2", T.Olmo2ForCausalLM, decoder(T.Olmo2Config)),
    Case("smollm3", T.SmolLM3ForCausalLM, decoder(T.SmolLM3Config, num_hidden_layers=4)),
    Case("gemma2", T.Gemma2ForCausalLM,
         decoder(T.Gemma2Config, head_dim=6, sliding_window=5, query_pre_attn_scalar=9, attn_logit_softcapping=2.0,
                 final_logit_softcapping=3.0)),
    Case("gemma3", T.Gemma3ForCausalLM,
         decoder(T.Gemma3TextConfig, num_hidden_layers=6, head_dim=6, sliding_window=5, query_pre_attn_scalar=6,
                 rope_parameters={"full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
                                  "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}})),
    Case("glm4", T.Glm4ForCausalLM, decoder(T.Glm4Config, head_dim=8)),
    Case("qwen3_moe", T.Qwen3MoeForCausalLM,
         decoder(T.Qwen3MoeConfig, head_dim=6, moe_intermediate_size=12, num_experts=4, num_experts_per_tok=2,
                 norm_topk_prob=True, num_hidden_layers=3, mlp_only_layers=[0])),
    Case("deepseek_v3", T.DeepseekV3ForCausalLM,
         decoder(T.DeepseekV3Config, num_key_value_heads=4, moe_intermediate_size=12, n_routed_experts=8,
                 num_experts_per_tok=3, n_group=4, topk_group=2, first_k_dense_replace=1, kv_lora_rank=8, q_lora_rank=10,
                 qk_rope_head_dim=4, qk_nope_head_dim=6, v_head_dim=5, num_nextn_predict_layers=0)),
    Case("deepseek_v3_yarn", T.DeepseekV3ForCausalLM,
         decoder(T.DeepseekV3Config, num_key_value_heads=4, moe_intermediate_size=12, n_routed_experts=4,
                 num_experts_per_tok=2, n_group=2, topk_group=1, first_k_dense_replace=1, kv_lora_rank=8, q_lora_rank=None,
                 qk_rope_head_dim=4, qk_nope_head_dim=6, v_head_dim=10, num_nextn_predict_layers=0, rope_interleave=False,
                 rope_parameters={"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "beta_fast": 32, "beta_slow": 1,
                                  "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 16})),
    Case("deepseek_v3_dense", T.DeepseekV3ForCausalLM,
         decoder(T.DeepseekV3Config, num_key_value_heads=4, n_routed_experts=8, n_group=2, topk_group=1, num_experts_per_tok=2,
                 kv_lora_rank=8, q_lora_rank=10, qk_rope_head_dim=4, qk_nope_head_dim=6, v_head_dim=5,
                 first_k_dense_replace=3, num_nextn_predict_layers=0)),
    Case("deepseek_v3_further", PREDICTING_DEEPSEEK,
         decoder(T.DeepseekV3Config, num_key_value_heads=4, moe_intermediate_size=12, n_routed_experts=4,
                 num_experts_per_tok=2, n_group=2, topk_group=1, first_k_dense_replace=1, kv_lora_rank=8, q_lora_rank=10,
                 qk_rope_head_dim=4, qk_nope_head_dim=6, v_head_dim=5, num_nextn_predict_layers=1), further=1),
    Case("glm4_moe_further", PREDICTING_GLM,
         decoder(T.Glm4MoeConfig, head_dim=8, moe_intermediate_size=12, n_routed_experts=4, num_experts_per_tok=2,
                 first_k_dense_replace=2, num_nextn_predict_layers=2), further=2),
    Case("glm4_moe", T.Glm4MoeForCausalLM,
         decoder(T.Glm4MoeConfig, head_dim=8, moe_intermediate_size=12, n_routed_experts=4, num_experts_per_tok=2,
                 first_k_dense_replace=1, use_qk_norm=True, attention_bias=True)),
    Case("gpt_oss", T.GptOssForCausalLM,
         decoder(T.GptOssConfig, head_dim=8, num_local_experts=4, num_experts_per_tok=2, sliding_window=5,
                 rope_parameters={"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "beta_fast": 32.0,
                                  "beta_slow": 1.0, "truncate": False, "original_max_position_embeddings": 8})),
    Case("llama4", T.Llama4ForCausalLM,
         decoder(T.Llama4TextConfig, head_dim=6, intermediate_size_mlp=20, num_hidden_layers=4, num_local_experts=4,
                 interleave_moe_layer_step=2, attention_chunk_size=4,
                 rope_parameters={"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0,
                                  "high_freq_factor": 1.0, "original_max_position_embeddings": 64})),
    Case("llama4_rising", T.Llama4ForCausalLM,
         decoder(T.Llama4TextConfig, head_dim=6, intermediate_size_mlp=20, num_hidden_layers=3, num_local_experts=4,
                 interleave_moe_layer_step=2, attention_chunk_size=4, no_rope_layer_interval=2, no_rope_layers=[1, 0, 1],
                 floor_scale=3, attn_scale=0.75)),
    # Values of 5 numbers after queries and keys of 6: no part of the fused array is a multiple of another. With an epsilon of
    # 1e-6 the norms of short vectors make gradients of transformers in float32 and float64 differ by 2e-5.
    Case("qwen3_next", T.Qwen3NextForCausalLM,
         decoder(T.Qwen3NextConfig, head_dim=8, num_hidden_layers=4, full_attention_interval=2, attention_bias=True,
                 rms_norm_eps=1e-2,
                 linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=6, linear_value_head_dim=5,
                 linear_conv_kernel_dim=3, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12,
                 shared_expert_intermediate_size=10, mlp_only_layers=[0])),
    Case("mamba2", T.Mamba2ForCausalLM,
         lambda: T.Mamba2Config(vocab_size=VOCAB, hidden_size=16, num_heads=8, head_dim=4, expand=2, state_size=6, n_groups=2,
                                chunk_size=4, num_hidden_layers=2, bos_token_id=1, eos_token_id=2, pad_token_id=None),
         keys=f"seq={SEQ}"),
    Case("bert", T.BertForMaskedLM, encoder(T.BertConfig, vocab_size=VOCAB, max_position_embeddings=SEQ), "masked"),
    Case("vit", T.ViTForImageClassification, encoder(T.ViTConfig, image_size=IMAGE, patch_size=4, num_labels=CLASSES), "image"),
    Case("t5", T.T5ForConditionalGeneration, t5(), "pair", LENGTHS),
    Case("t5_gated", T.T5ForConditionalGeneration, t5(feed_forward_proj="gated-gelu"), "pair", LENGTHS),
]


class _WideTorch:
    """The module torch with float64 under the names of float32."""

    def __getattr__(self, name):
        return torch.float64 if name in ("float32", "float") else getattr(torch, name)


@contextlib.contextmanager
def wide():
    modules = [m for name, m in list(sys.modules.items())
               if name.startswith(("transformers.models.", "transformers.modeling_")) and getattr(m, "torch", None) is torch]
    narrow = torch.Tensor.float
    torch.Tensor.float = torch.Tensor.double
    for module in modules:
        module.torch = _WideTorch()
    try:
        yield
    finally:
        torch.Tensor.float = narrow
        for module in modules:
            module.torch = torch


def make_model(case, dtype, seed=1):
    """Random weights, biases and norms too, so that none of them can be left out unnoticed; equal for every dtype."""
    torch.manual_seed(seed)
    config = case.config()
    config._experts_implementation = "eager"  # the others multiply in float32 only
    model = case.make(config).eval().to(dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, parameter in sorted(model.named_parameters()):
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=torch.float32) * 0.2)
    return model


def make_inputs(case, dtype):
    """By the names of our inputs."""
    generator = torch.Generator().manual_seed(7)

    def tokens(length):  # 0 is BERT's padding, whose row of the table transformers does not train
        return torch.randint(1, VOCAB, (BATCH, length), generator=generator)

    if case.kind == "image":
        return {"images": torch.randn((BATCH, IMAGE, IMAGE, 3), generator=generator).to(dtype),
                "targets": torch.randint(0, CLASSES, (BATCH,), generator=generator)}
    if case.kind == "pair":
        return {"source": tokens(SOURCE), "tokens": tokens(SEQ), "targets": tokens(SEQ)}
    inputs = {"tokens": tokens(SEQ), "targets": tokens(SEQ)}
    for depth in range(case.further):
        inputs[f"targets_{depth + 1}"] = tokens(SEQ)
    if case.kind == "masked":
        inputs["segments"] = torch.randint(0, 2, (BATCH, SEQ), generator=generator)
        keep = torch.zeros((BATCH, SEQ), dtype=torch.bool)
        for row in range(BATCH):
            keep[row, torch.randperm(SEQ, generator=generator)[:MASKED]] = True
        inputs["targets"] = torch.where(keep, inputs["targets"], -1)
    return inputs


def logits_of(case, model, inputs):
    if case.kind == "image":
        return model(inputs["images"].permute(0, 3, 1, 2)).logits
    if case.kind == "pair":
        return model(input_ids=inputs["source"], decoder_input_ids=inputs["tokens"]).logits
    if case.kind == "masked":
        return model(inputs["tokens"], token_type_ids=inputs["segments"]).logits
    return model(inputs["tokens"]).logits


def loss_of(logits, inputs):
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), inputs["targets"].reshape(-1), ignore_index=-1)


FURTHER_WEIGHT = 0.3  # of the mean of the losses of further tokens


def further_loss_of(case, model, inputs):
    """0 for models that predict the next token alone."""
    if not case.further:
        return 0
    losses = [loss_of(logits, {"targets": inputs[f"targets_{depth + 1}"]})
              for depth, logits in enumerate(model.further_logits(inputs))]
    return FURTHER_WEIGHT / case.further * sum(losses)
