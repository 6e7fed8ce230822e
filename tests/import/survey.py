"""Architectures of transformers as their users export them: the defaults of each configuration apart from sizes, random weights, in
evaluation mode (as from_pretrained leaves a model), inside the simplest module that returns the loss.

The 30 of ARCHITECTURES are the survey, and OTHERS were tried too; how they were chosen says docs/results/pt2-survey.md.
"""
import torch
import transformers as T

T.logging.set_verbosity_error()
BATCH, LENGTH, WORDS, CLASSES, SIDE = 8, 16, 64, 5, 16


class Loss(torch.nn.Module):
    """A model that gets two tensors by these names, and returns its loss."""

    def __init__(self, model, names, **arguments):
        super().__init__()
        self.model, self.names, self.arguments = model, names, arguments

    def forward(self, first, second):
        return self.model(**dict(zip(self.names, (first, second))), **self.arguments).loss


def words(generator, low=3):
    return torch.randint(low, WORDS, (BATCH, LENGTH), generator=generator)


def text(model, config, **sizes):
    return lambda generator: (Loss(getattr(T, model)(getattr(T, config)(**sizes)), ("input_ids", "labels")),
                              (words(generator), words(generator)))


def pictures(generator):
    return torch.randn(BATCH, 3, SIDE, SIDE, generator=generator)


def image(model, config, **sizes):
    return lambda generator: (Loss(getattr(T, model)(getattr(T, config)(**sizes, num_labels=CLASSES)), ("pixel_values", "labels")),
                              (pictures(generator), torch.randint(CLASSES, (BATCH,), generator=generator)))


def pair(model, config, **parts):
    return lambda generator: (Loss(getattr(T, model)(getattr(T, config)(**parts)), ("input_ids", "pixel_values"), return_loss=True),
                              (words(generator), pictures(generator)))


def heard(generator):
    config = T.WhisperConfig(vocab_size=WORDS, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                             decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, num_mel_bins=8, max_source_positions=16,
                             max_target_positions=32, **ENDS, decoder_start_token_id=1)
    return (Loss(T.WhisperForConditionalGeneration(config), ("input_features", "labels")),
            (torch.randn(BATCH, 8, 32, generator=generator), words(generator)))


def waves(generator):
    config = T.Wav2Vec2Config(**DEEP, num_labels=CLASSES, classifier_proj_size=16, conv_dim=(16,) * 7, num_conv_pos_embeddings=16,
                              num_conv_pos_embedding_groups=4)
    return (Loss(T.Wav2Vec2ForSequenceClassification(config), ("input_values", "labels")),
            (torch.randn(BATCH, 6400, generator=generator), torch.randint(CLASSES, (BATCH,), generator=generator)))


# Sizes, and the ids that must be among so few words.
ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
DEEP = {"vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
GROUPED = {**DEEP, "num_key_value_heads": 2}
PATCHES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": SIDE, "patch_size": 4}
SEEN = {**PATCHES, "intermediate_size": 48}
T5 = {"vocab_size": WORDS, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
BART = {"vocab_size": WORDS, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 40}
# What microsoft's deberta-v3 models set.
DEBERTA_V3 = {"relative_attention": True, "position_buckets": 8, "norm_rel_ebd": "layer_norm", "share_att_key": True,
              "pos_att_type": "p2c|c2p", "position_biased_input": False}
ARCHITECTURES = {
    # text in, text out
    "bert": text("BertForMaskedLM", "BertConfig", **DEEP),
    "roberta": text("RobertaForMaskedLM", "RobertaConfig", **DEEP, max_position_embeddings=40),
    "xlm-roberta": text("XLMRobertaForMaskedLM", "XLMRobertaConfig", **DEEP, max_position_embeddings=40),
    "mpnet": text("MPNetForMaskedLM", "MPNetConfig", **DEEP, max_position_embeddings=40),
    "distilbert": text("DistilBertForMaskedLM", "DistilBertConfig", vocab_size=WORDS, dim=32, hidden_dim=48, n_layers=2, n_heads=4),
    "electra": text("ElectraForMaskedLM", "ElectraConfig", **DEEP, embedding_size=16),
    "deberta-v2": text("DebertaV2ForMaskedLM", "DebertaV2Config", **DEEP, **DEBERTA_V3),
    "albert": text("AlbertForMaskedLM", "AlbertConfig", **DEEP, embedding_size=16),
    "t5": text("T5ForConditionalGeneration", "T5Config", **T5),
    "bart": text("BartForConditionalGeneration", "BartConfig", **BART),
    # images and sound
    "vit": image("ViTForImageClassification", "ViTConfig", **SEEN),
    "dinov2": image("Dinov2ForImageClassification", "Dinov2Config", **PATCHES),
    "clip": pair("CLIPModel", "CLIPConfig", text_config={**DEEP, "max_position_embeddings": LENGTH, "projection_dim": 32, "bos_token_id": 1,
                                                         "eos_token_id": 2}, vision_config={**SEEN, "projection_dim": 32}, projection_dim=32),
    "whisper": heard,
    "wav2vec2": waves,
    # the next word
    "gpt2": text("GPT2LMHeadModel", "GPT2Config", vocab_size=WORDS, n_positions=32, n_embd=32, n_layer=2, n_head=4, bos_token_id=1,
                 eos_token_id=1),
    "opt": text("OPTForCausalLM", "OPTConfig", vocab_size=WORDS, hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4,
                word_embed_proj_dim=32, max_position_embeddings=32),
    "llama": text("LlamaForCausalLM", "LlamaConfig", **GROUPED),
    "mistral": text("MistralForCausalLM", "MistralConfig", **GROUPED),
    "mixtral": text("MixtralForCausalLM", "MixtralConfig", **GROUPED, num_local_experts=4),
    "qwen2": text("Qwen2ForCausalLM", "Qwen2Config", **GROUPED),
    "qwen3": text("Qwen3ForCausalLM", "Qwen3Config", **GROUPED, head_dim=8),
    "qwen3_moe": text("Qwen3MoeForCausalLM", "Qwen3MoeConfig", **GROUPED, head_dim=8, moe_intermediate_size=24, num_experts=8,
                      num_experts_per_tok=2),
    "gemma2": text("Gemma2ForCausalLM", "Gemma2Config", **GROUPED, head_dim=8),
    "gemma3_text": text("Gemma3ForCausalLM", "Gemma3TextConfig", **GROUPED, head_dim=8),
    "phi": text("PhiForCausalLM", "PhiConfig", **DEEP),
    "phi3": text("Phi3ForCausalLM", "Phi3Config", **GROUPED, **ENDS),
    "gpt_neox": text("GPTNeoXForCausalLM", "GPTNeoXConfig", **DEEP),
    "bloom": text("BloomForCausalLM", "BloomConfig", vocab_size=WORDS, hidden_size=32, n_layer=2, n_head=4),
    "falcon": text("FalconForCausalLM", "FalconConfig", vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4),
}
OTHERS = {
    "modernbert": text("ModernBertForMaskedLM", "ModernBertConfig", **DEEP, **ENDS, cls_token_id=1, sep_token_id=2),
    "siglip": pair("SiglipModel", "SiglipConfig", text_config={**DEEP, "max_position_embeddings": LENGTH}, vision_config=SEEN),
    "gemma": text("GemmaForCausalLM", "GemmaConfig", **GROUPED, head_dim=8),
    "gptj": text("GPTJForCausalLM", "GPTJConfig", vocab_size=WORDS, n_positions=32, n_embd=32, n_layer=2, n_head=4, rotary_dim=4),
    "cohere": text("CohereForCausalLM", "CohereConfig", **GROUPED),
    "cohere2": text("Cohere2ForCausalLM", "Cohere2Config", **GROUPED),
    "olmo2": text("Olmo2ForCausalLM", "Olmo2Config", **GROUPED),
    "glm4": text("Glm4ForCausalLM", "Glm4Config", **GROUPED, head_dim=8, **ENDS),
    "granite": text("GraniteForCausalLM", "GraniteConfig", **GROUPED),
    "starcoder2": text("Starcoder2ForCausalLM", "Starcoder2Config", **GROUPED),
    "smollm3": text("SmolLM3ForCausalLM", "SmolLM3Config", **GROUPED, **ENDS),
    "gpt_oss": text("GptOssForCausalLM", "GptOssConfig", **GROUPED, head_dim=8, num_local_experts=4, num_experts_per_tok=2),
    "mamba": text("MambaForCausalLM", "MambaConfig", vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, state_size=4),
    "mamba2": text("Mamba2ForCausalLM", "Mamba2Config", vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, state_size=8, num_heads=8,
                   head_dim=8, n_groups=1, chunk_size=8),
}


def make(name):
    """The module and its two arguments."""
    torch.manual_seed(0)
    module, arguments = (ARCHITECTURES | OTHERS)[name](torch.Generator().manual_seed(1))
    return module.eval(), arguments
