"""Configurations of Hugging Face models that leave keys out, spell them in another way or disagree with the arrays beside them.

A variant is a config.json as it stands in the folder. `transformers` makes a model of it with random weights, and reads the folder
back, so what it computes is what the file means. `change` edits the arrays before that.
"""
import dataclasses
import typing

import torch

from models import ALL_CASES, CLASSES, IMAGE, SEQ, VOCAB

Arrays = typing.Dict[str, torch.Tensor]


@dataclasses.dataclass
class Variant:
    name: str
    config: dict
    change: typing.Callable[[Arrays], Arrays] = lambda arrays: arrays
    keys: str = ""  # of our model, behind the path
    seq: int = SEQ
    batch: int = 2
    loss_of_theirs: bool = False  # with what the model adds to the cross entropy


DECODER = dict(vocab_size=VOCAB, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
               num_key_value_heads=2, max_position_embeddings=SEQ)
EIGHT = {**DECODER, "num_attention_heads": 8, "num_key_value_heads": 8}
GPT2 = dict(model_type="gpt2", vocab_size=VOCAB, n_positions=SEQ, n_embd=16, n_layer=2, n_head=4)
ENCODER = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4)
BERT = dict(model_type="bert", vocab_size=VOCAB, max_position_embeddings=SEQ, **ENCODER)
VIT = dict(model_type="vit", image_size=IMAGE, patch_size=4, **ENCODER)
T5 = dict(model_type="t5", vocab_size=VOCAB, d_model=16, d_kv=6, d_ff=24, num_layers=2, num_heads=4,
          relative_attention_num_buckets=8, relative_attention_max_distance=10)
T5_LENGTHS = f"seq={SEQ},source={SEQ}"
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def decoder(model_type, without=(), **keys):
    config = {"model_type": model_type, **DECODER, **keys}
    return {key: value for key, value in config.items() if key not in without}


def other_head(arrays):
    """A head with values of its own, in the place of the copy that there may be."""
    name = "transformer.wte.weight" if "transformer.wte.weight" in arrays else \
        "shared.weight" if "shared.weight" in arrays else "model.embed_tokens.weight"
    head = torch.randn(arrays[name].shape, generator=torch.Generator().manual_seed(3)) * 0.3
    return {**arrays, "lm_head.weight": head}


def same_head(arrays):
    return {**arrays, "lm_head.weight": arrays["shared.weight"].clone()}


def renamed(old, new):
    return lambda arrays: {new if name == old else name: value for name, value in arrays.items()}


def without(name):
    return lambda arrays: {key: value for key, value in arrays.items() if key != name}


def with_prefix(old, new):
    return lambda arrays: {new + name[len(old):] if name.startswith(old) else name: value for name, value in arrays.items()}


def with_new_names(arrays):
    """The names that modules have; files have older ones."""
    for old, new in (("language_model.model.", "model.language_model."), ("vision_tower.", "model.vision_tower."),
                     ("multi_modal_projector.", "model.multi_modal_projector.")):
        arrays = with_prefix(old, new)(arrays)
    return arrays


# Models that also see, and of which the language model is read.
GEMMA3 = {
    "model_type": "gemma3", "mm_tokens_per_image": 4,
    "text_config": decoder("gemma3_text", head_dim=6, sliding_window=5, num_hidden_layers=6),
    "vision_config": {"model_type": "siglip_vision_model", "image_size": IMAGE, "patch_size": 4, **ENCODER}}
LLAMA4 = {
    "model_type": "llama4", "tie_word_embeddings": False,
    "text_config": decoder("llama4_text", head_dim=6, intermediate_size_mlp=20, num_hidden_layers=4, num_local_experts=4,
                           attention_chunk_size=4, floor_scale=5),
    "vision_config": {"model_type": "llama4_vision_model", "image_size": IMAGE, "patch_size": 4, "vision_output_dim": 16,
                      "projector_input_dim": 16, "projector_output_dim": 16, **ENCODER}}

VARIANTS = [
    Variant("gpt2_with_little_said", GPT2),
    Variant("gpt2_by_other_names", dict(model_type="gpt2", vocab_size=VOCAB, max_position_embeddings=SEQ, hidden_size=16,
                                        num_hidden_layers=2, num_attention_heads=4, n_ctx=7)),
    Variant("gpt2_by_two_names", {**GPT2, "n_embd": 20, "hidden_size": 16}),
    Variant("gpt2_with_a_width", {**GPT2, "n_inner": 40, "activation_function": "relu"}),
    Variant("gpt2_untied", {**GPT2, "tie_word_embeddings": False}),
    Variant("gpt2_tied_with_head", GPT2, other_head),
    Variant("llama_with_little_said", decoder("llama")),
    Variant("llama_without_key_heads", decoder("llama", ("num_key_value_heads",))),
    Variant("llama_with_nulls", decoder("llama", num_key_value_heads=None, head_dim=None, rope_scaling=None, rope_parameters=None)),
    Variant("llama_linear_rope_old_spelling", decoder("llama", rope_theta=5e3, rope_scaling={"type": "linear", "factor": 2.0})),
    Variant("llama3_rope_old_spelling", decoder("llama", head_dim=16, rope_theta=5e4, rope_scaling={
        **LLAMA3, "original_max_position_embeddings": 8})),
    Variant("llama3_rope_new_spelling", decoder("llama", head_dim=16, rope_parameters={
        **LLAMA3, "rope_theta": 5e4, "original_max_position_embeddings": 8})),
    Variant("llama3_rope_in_both_spellings", decoder(
        "llama", rope_theta=7e2, rope_scaling={"rope_type": "linear", "factor": 4.0},
        rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 9e2})),
    Variant("llama_empty_rope_scaling", decoder("llama", rope_scaling={}, rope_parameters={"rope_theta": 9e2})),
    Variant("llama3_rope_without_positions", decoder("llama", head_dim=16, rope_parameters=LLAMA3)),
    Variant("llama3_rope_with_positions_outside", decoder("llama", head_dim=16, original_max_position_embeddings=8,
                                                          rope_parameters=LLAMA3)),
    Variant("llama3_rope_with_positions_twice", decoder(
        "llama", head_dim=16, original_max_position_embeddings=4,
        rope_parameters={**LLAMA3, "original_max_position_embeddings": 8})),
    Variant("llama_tied_with_head", decoder("llama", tie_word_embeddings=True), other_head),
    Variant("llama_tied_by_its_head", decoder("llama", tie_word_embeddings=True),
            renamed("model.embed_tokens.weight", "lm_head.weight")),
    Variant("mistral_without_window", dict(
        model_type="mistral", vocab_size=11, hidden_size=4, intermediate_size=4, num_hidden_layers=1, num_attention_heads=1,
        num_key_value_heads=1, max_position_embeddings=4200), seq=4200, batch=1),
    Variant("mistral_null_window", decoder("mistral", sliding_window=None)),
    Variant("mistral_window_of_more_than_the_file_has", decoder("mistral", sliding_window=20, max_position_embeddings=16),
            keys="seq=24", seq=24),
    Variant("mistral_without_key_heads", {key: value for key, value in decoder("mistral", **EIGHT).items()
                                          if key != "num_key_value_heads"}),
    Variant("mixtral_without_rope_parameters", decoder("mixtral", num_local_experts=4, rms_norm_eps=1e-5)),
    Variant("mixtral_without_rms_norm_eps", decoder("mixtral", num_local_experts=4, rope_theta=1e6)),
    Variant("mixtral_by_another_name", decoder("mixtral", num_experts=3)),
    Variant("mixtral_with_little_said", decoder("mixtral")),
    Variant("mixtral_top1", decoder("mixtral", num_local_experts=4, num_experts_per_tok=1)),
    Variant("mixtral_that_asks_for_no_balance", decoder("mixtral", num_local_experts=4, router_aux_loss_coef=0.5), batch=1,
            loss_of_theirs=True),
    Variant("mixtral_that_asks_for_balance", decoder("mixtral", num_hidden_layers=1, num_local_experts=4, router_aux_loss_coef=0.5,
                                                     output_router_logits=True), batch=1, loss_of_theirs=True),
    Variant("mixtral_top1_that_asks_for_balance", decoder(
        "mixtral", num_hidden_layers=1, num_local_experts=4, num_experts_per_tok=1, output_router_logits=True), batch=1,
        loss_of_theirs=True),
    Variant("qwen2_with_little_said", {key: value for key, value in decoder("qwen2", num_attention_heads=32).items()
                                       if key != "num_key_value_heads"} | {"hidden_size": 64}),
    Variant("qwen2_windows_from_the_first_layer_on", decoder("qwen2", use_sliding_window=True, sliding_window=5,
                                                             max_window_layers=0)),
    Variant("qwen2_windows_behind_the_last_layer", decoder("qwen2", use_sliding_window=True, sliding_window=5)),
    Variant("qwen2_windows_by_layer_types", decoder("qwen2", use_sliding_window=True, sliding_window=5,
                                                    layer_types=["sliding_attention"] * 2)),
    Variant("qwen2_windows_in_every_other_layer", decoder("qwen2", use_sliding_window=True, sliding_window=5,
                                                          layer_types=["sliding_attention", "full_attention"])),
    Variant("llama_with_gelu", decoder("llama", hidden_act="gelu_pytorch_tanh")),
    Variant("qwen2_layer_types_without_windows", decoder("qwen2", use_sliding_window=True, sliding_window=5, max_window_layers=0,
                                                         layer_types=["full_attention"] * 2)),
    Variant("qwen3_without_head_dim", decoder("qwen3")),
    Variant("qwen3_with_biases", decoder("qwen3", head_dim=6, attention_bias=True)),
    Variant("phi3_long_factors_old_spelling", decoder("phi3", pad_token_id=None, head_dim=4, original_max_position_embeddings=8, rope_scaling={
        "type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [1.25, 3.0]})),
    Variant("phi3_short_factors_new_spelling", decoder(
        "phi3", pad_token_id=None, max_position_embeddings=2 * SEQ, original_max_position_embeddings=SEQ, rope_parameters={
            "rope_type": "longrope", "short_factor": [1.5, 2.0], "long_factor": [1.25, 3.0], "attention_factor": 1.5}),
            keys=f"seq={SEQ}"),
    Variant("llama_long_factors", decoder("llama", rope_parameters={
        "rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 8, "short_factor": [1.0, 1.5],
        "long_factor": [1.25, 3.0]})),
    Variant("deepseek_v3_without_a_layer_of_experts", decoder("deepseek_v3", num_key_value_heads=4, kv_lora_rank=8, q_lora_rank=10,
                                                              qk_rope_head_dim=4, qk_nope_head_dim=6, v_head_dim=5)),
    Variant("deepseek_v3_with_odd_heads", decoder("deepseek_v3", num_key_value_heads=4, kv_lora_rank=8, q_lora_rank=10,
                                                  qk_rope_head_dim=2, qk_nope_head_dim=5, v_head_dim=5)),
    Variant("llama4_with_a_part_of_a_chunk", decoder("llama4_text", head_dim=6, num_local_experts=4, intermediate_size_mlp=20,
                                                     attention_chunk_size=SEQ // 2 - 1), seq=2 * (SEQ // 2 - 1)),
    Variant("gemma3_with_a_cap_that_is_passed_over", decoder("gemma3_text", head_dim=6, attn_logit_softcapping=0.5)),
    Variant("gemma3_with_images", {**GEMMA3, "tie_word_embeddings": True}),
    Variant("gemma3_with_images_new_names", GEMMA3, with_new_names),
    Variant("llama4_with_images", LLAMA4),
    Variant("bert_with_little_said", BERT),
    Variant("bert_with_types", {**BERT, "type_vocab_size": 3, "hidden_act": "gelu_new", "layer_norm_eps": 1e-3}),
    Variant("vit_with_little_said", VIT),
    Variant("vit_with_a_number_of_labels", {**VIT, "num_labels": CLASSES}),
    Variant("t5_with_little_said", T5, keys=T5_LENGTHS),
    Variant("t5_said_to_be_tied_by_null", {**T5, "tie_word_embeddings": None}, keys=T5_LENGTHS),
    Variant("t5v11_as_published", {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}, other_head,
            keys=T5_LENGTHS),
    Variant("t5v11_saved_by_transformers5", {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": True,
                                             "scale_decoder_outputs": False}, other_head, keys=T5_LENGTHS),
    Variant("t5_untied_without_head", {**T5, "tie_word_embeddings": False}, keys=T5_LENGTHS),
    Variant("t5_untied_with_the_same_head", {**T5, "tie_word_embeddings": False}, same_head, keys=T5_LENGTHS),
    Variant("t5_scaled_with_another_head", T5, other_head, keys=T5_LENGTHS),
    Variant("t5_by_its_decoder", T5, renamed("shared.weight", "decoder.embed_tokens.weight"), keys=T5_LENGTHS),
    Variant("t5_with_the_old_names_of_its_activation", {**T5, "feed_forward_proj": "gated-gelu", "dense_act_fn": "gelu",
                                                        "is_gated_act": True}, keys=T5_LENGTHS),
    Variant("t5_with_an_activation_beside_its_projection", {**T5, "feed_forward_proj": "relu", "dense_act_fn": "silu"},
            keys=T5_LENGTHS),
    Variant("t5_gated_by_full_name", {**T5, "feed_forward_proj": "gated-gelu_new"}, keys=T5_LENGTHS),
]

# Of each family what differs most from the models of models.py.
QUICK = (
    "gpt2_by_other_names", "gpt2_tied_with_head", "llama_with_nulls", "llama3_rope_old_spelling", "llama3_rope_in_both_spellings",
    "llama_tied_by_its_head", "mistral_window_of_more_than_the_file_has", "mixtral_by_another_name", "mixtral_top1",
    "mixtral_that_asks_for_balance", "phi3_short_factors_new_spelling", "gemma3_with_images_new_names", "llama4_with_images", "deepseek_v3_with_odd_heads",
    "llama4_with_a_part_of_a_chunk", "gemma3_with_a_cap_that_is_passed_over", "qwen2_windows_from_the_first_layer_on", "qwen3_without_head_dim", "bert_with_little_said",
    "vit_with_little_said", "t5_with_little_said", "t5v11_as_published", "t5_scaled_with_another_head", "t5_by_its_decoder")
if not ALL_CASES:
    VARIANTS = [one for one in VARIANTS if one.name in QUICK]

# Files that are refused: a config.json and the end of the line.
REFUSED = [
    (decoder("qwen2", use_sliding_window=True, sliding_window=5, max_window_layers=1),
     "expected a model that can be computed exactly, found one that is approximated: full attention is in one of 2 blocks, not in the 1 of 2 that the file names (planning takes it: "
     "inspect, simulate, plan, report, export of plans)"),
    (decoder("qwen3", head_dim=4, layer_types=["sliding_attention"] * 2),
     "sliding_window: expected a window, found none for 2 of 2 layers"),
    (decoder("qwen3", head_dim=4, layer_types=["full_attention"]),
     'layer_types: expected "full_attention" or "sliding_attention" for each of 2 layers'),
    (decoder("mistral", sliding_window=0), "sliding_window 0 is not supported (supported: null, 1, 2, ...)"),
    (decoder("qwen3", head_dim=None), "head_dim must be a number, found none"),
    (decoder("llama", rms_norm_eps=None), "rms_norm_eps must be a number, found none"),
    (decoder("qwen3_next", hidden_act="gelu"), 'hidden_act "gelu" is not supported (supported: "silu", "swish")'),
    (decoder("llama", is_causal=False), "is_causal false is not supported (supported: true)"),
    (decoder("llama", partial_rotary_factor=0.5), "expected a model that can be computed exactly, found one that is approximated: rotary positions turn whole heads (partial_rotary_factor 0.5) (planning takes it: inspect, "
     "simulate, plan, report, export of plans)"),
    (decoder("llama", rope_parameters={"some_attention": {"rope_type": "default"}}),
     "rope_parameters: expected one object for all layers or one for 'full_attention', found one for 'some_attention'"),
    (decoder("llama", rope_scaling={"rope_type": "dynamic", "factor": 2.0}),
     'expected a model that can be computed exactly, found one that is approximated: rotary frequencies are not scaled (rope_type "dynamic") (planning takes it: inspect, simulate, '
     'plan, report, export of plans)'),
    ({**BERT, "is_decoder": True}, "is_decoder true is not supported (supported: false)"),
    ({**BERT, "position_embedding_type": "relative_key"},
     'position_embedding_type "relative_key" is not supported (supported: "absolute")'),
    ({**VIT, "problem_type": "regression", "num_labels": 1},
     'problem_type "regression" is not supported (supported: null, "single_label_classification")'),
    ({**VIT, "id2label": {"0": "a", "1": "b"}, "num_labels": 3}, "num_labels 3 is not supported (supported: 2, names in id2label)"),
    ({**VIT, "num_labels": 1}, "num_labels 1 is not supported (supported: 2, 3, ...)"),
    ({**T5, "num_decoder_layers": 3}, "num_decoder_layers 3 is not supported (supported: 2, num_layers)"),
    ({**T5, "feed_forward_proj": "gated-tanh"}, 'feed_forward_proj "gated-tanh" is not supported'),
    ({**GPT2, "scale_attn_by_inverse_layer_idx": True},
     "scale_attn_by_inverse_layer_idx true is not supported (supported: false)"),
]
