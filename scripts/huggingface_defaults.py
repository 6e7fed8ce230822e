#!/usr/bin/env python3
"""Writes tessera/models/huggingface/huggingface_defaults.cc: what a config.json means where it leaves a key out, by model type.

  .venv/bin/python scripts/huggingface_defaults.py            writes the file anew, from the `transformers` of this Python
  .venv/bin/python scripts/huggingface_defaults.py --check    says where the file differs from them (exit code 1)

A default is that of the field of the type's own configuration class, before anything is computed from others. PASSED_OVER are the
fields that change nothing that is computed here; all others must be read by tessera/models/huggingface/*.cc, which a test checks.
The file also has the names of keys that are passed over; any other key of a config.json is named as unknown.
tests/huggingface compares the file with the installed version.
"""
import argparse
import dataclasses
import json
import pathlib
import sys
import textwrap

TYPES = ("gpt2", "llama", "mistral", "mixtral", "qwen2", "qwen3", "bert", "vit", "t5", "qwen3_moe", "deepseek_v3", "deepseek_v2",
         "gpt_oss", "gemma2", "gemma3_text", "olmo2", "phi3", "glm4", "glm4_moe", "llama4_text", "nemotron",
         "smollm3", "mamba2", "qwen3_next")
FILE = pathlib.Path(__file__).resolve().parent.parent / "tessera/models/huggingface/huggingface_defaults.cc"
PASSED_OVER = {
    # These keys belong to the file, to text generation or to the output of a call.
    "transformers_version", "architectures", "dtype", "output_hidden_states", "return_dict", "use_cache", "label2id",
    "bos_token_id", "eos_token_id", "is_encoder_decoder",
    # The row of the table that is not trained; the values of a step are the same.
    "pad_token_id",
    # Dropout and initial values belong to the run.
    "attention_dropout", "attention_probs_dropout_prob", "attn_pdrop", "embd_pdrop", "resid_pdrop", "hidden_dropout_prob",
    "dropout_rate", "initializer_range", "initializer_factor",
    # The same numbers in other pieces or in a wider dtype.
    "chunk_size_feed_forward", "pretraining_tp", "reorder_and_upcast_attn",
    # These belong to heads that are not imported.
    "classifier_dropout", "summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels",
    "summary_first_dropout", "encoder_stride", "pooler_output_size", "pooler_act",
}
# Keys that no class of transformers 5 has a field for, but that files of earlier versions hold, and that change nothing either.
FORMER = {
    # Of the file and of calls.
    "model_type", "torch_dtype", "auto_map", "name_or_path", "tokenizer_class", "prefix", "task_specific_params", "torchscript",
    "finetuning_task", "output_attentions", "attn_implementation", "gradient_checkpointing", "output_past", "tf_legacy_loss",
    "use_bfloat16", "sep_token_id", "decoder_start_token_id", "unsloth_version", "unsloth_fixed", "for_llm_compressor", "ep_size",
    # Of text generation.
    "max_length", "min_length", "max_new_tokens", "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty",
    "temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "output_scores", "return_dict_in_generate",
    "forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens",
    "begin_suppress_tokens", "cache_implementation",
    # How arrays are stored. The arrays themselves say it too, and those of dtypes that are not read are refused.
    "quantization_config",
    # What follows from other keys, and second names.
    "qk_head_dim", "dense_act_fn", "is_gated_act", "n_ctx", "initial_context_length", "experts_per_token",
    # A coefficient of a loss that the class does not add.
    "aux_loss_alpha", "seq_aux",
}
# The same, where only this value changes nothing.
FORMER_VALUES = {
    "pruned_heads": {}, "tie_encoder_decoder": False, "add_cross_attention": False, "is_decoder": False,
    "position_embedding_type": "absolute", "moe_layer_freq": 1,
}
# Classes and kinds of losses matter where the head is one of classes.
CLASSES, ENCODER_ONLY = {"id2label", "problem_type"}, {"is_decoder"}


def table():
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    types = {}
    for name in TYPES:
        config = CONFIG_MAPPING[name]
        passed = PASSED_OVER | (set() if name == "vit" else CLASSES) | (ENCODER_ONLY if name == "t5" else set())
        defaults = {}
        for field in dataclasses.fields(config):
            if field.name in passed:
                continue
            known = field.default is not dataclasses.MISSING
            key = config.attribute_map.get(field.name, field.name)
            defaults[key] = field.default if known else field.default_factory()
        if "rope_parameters" in defaults:
            theta = config.default_theta
            defaults["rope_theta"] = theta["global"] if isinstance(theta, dict) else theta
        types[name] = {"defaults": defaults, "other_names": dict(config.attribute_map)}
    return types


def spelt(value):
    """Infinite numbers as transformers 5 writes them, since JSON has none."""
    if isinstance(value, (list, tuple)):
        return [spelt(each) for each in value]
    return {"__float__": "Infinity"} if value == float("inf") else value


def text():
    lines = []
    for name, entry in table().items():
        lines.append(f'"{name}": {{')
        for key, value in entry["defaults"].items():
            lines.append(f'  "{key}": {json.dumps(spelt(value))},')
        names = ", ".join(f'"{other}": "{key}"' for other, key in entry["other_names"].items())
        lines.append(f'  "(other names)": {{{names}}}}},')
    lines[-1] = lines[-1].removesuffix(",")
    body = "\n".join(lines)
    rows = [f'"{name}": []' for name in sorted(PASSED_OVER | FORMER | CLASSES)]
    rows += [f'"{name}": {json.dumps([value])}' for name, value in FORMER_VALUES.items()]
    passed = "\n".join(textwrap.wrap(", ".join(rows), 98, break_on_hyphens=False))
    return f"""// Written by scripts/huggingface_defaults.py from the configuration classes of transformers; do not edit.
#include "tessera/models/huggingface/huggingface_defaults.h"

namespace tessera {{

std::string_view huggingface_defaults() {{
  return R"json({{
{body}
}})json";
}}

std::string_view huggingface_passed_over() {{
  return R"json({{
{passed}
}})json";
}}

}}  // namespace tessera
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare only")
    options = parser.parse_args()
    new = text()
    if not options.check:
        FILE.write_text(new)
        return 0
    old = FILE.read_text()
    if old == new:
        return 0
    import difflib
    sys.stderr.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True), str(FILE), "transformers"))
    return 1


if __name__ == "__main__":
    sys.exit(main())
