#include "tessera/models/architecture_text.h"

#include <fmt/format.h>

namespace tessera {
namespace {

std::string base_keys(const Architecture& m, const std::string& family) {
  return fmt::format("{}:layers={},hidden={},heads={},seq={},vocab={},ffn={}", family, m.layers,
                     m.hidden, m.heads, m.seq, m.vocab, m.ffn);
}

std::string llama_keys(const Architecture& m, const std::string& family) {
  std::string text = base_keys(m, family) + fmt::format(",kv_heads={}", m.kv_heads);
  if (m.head_dim > 0) text += fmt::format(",head_dim={}", m.head_dim);
  if (m.tied) text += ",tied=1";
  if (m.q_rank > 0) text += fmt::format(",q_rank={}", m.q_rank);
  if (m.kv_rank > 0) text += fmt::format(",kv_rank={}", m.kv_rank);
  return text;
}

std::string expert_keys(const Architecture& m) {
  std::string text = fmt::format(",experts={},top_k={},capacity_factor=1", m.experts, m.top_k);
  if (m.shared_ffn > 0) text += fmt::format(",shared_ffn={}", m.shared_ffn);
  if (m.latent > 0) text += fmt::format(",latent={}", m.latent);
  return text;
}

std::string mixture_keys(const Architecture& m) {
  std::string text = llama_keys(m, "mixtral") + expert_keys(m);
  if (m.dense_layers > 0)
    text += fmt::format(",dense_layers={},dense_ffn={}", m.dense_layers, m.dense_ffn);
  return text;
}

std::string hybrid_keys(const Architecture& m) {
  std::string text = llama_keys(m, "nemotron_h") +
                     fmt::format(",pattern={},ssm_heads={},ssm_head_dim={},ssm_groups={},state={}",
                                 m.pattern, m.ssm_heads, kStateHeadDim, kStateGroups, kState);
  if (m.mtp > 0) text += fmt::format(",mtp={}", m.mtp);
  return m.experts == 0 ? text : text + expert_keys(m);
}

std::string gpt_keys(const Architecture& m) {
  std::string text = base_keys(m, "gpt") + fmt::format(",tied={}", m.tied ? 1 : 0);
  if (m.kv_heads != m.heads) text += fmt::format(",kv_heads={}", m.kv_heads);
  return text;
}

}  // namespace

Result<std::string> architecture_text(const Architecture& m) {
  switch (m.form) {
    case Form::kGpt: return gpt_keys(m);
    case Form::kLlama: return llama_keys(m, "llama");
    case Form::kMixture: return mixture_keys(m);
    case Form::kHybrid: return hybrid_keys(m);
    case Form::kBert: return base_keys(m, "bert");
    case Form::kT5: return base_keys(m, "t5") + fmt::format(",source={}", m.seq);
    case Form::kVit:
      return fmt::format("vit:layers={},hidden={},heads={},ffn={}", m.layers, m.hidden, m.heads,
                         m.ffn);
    case Form::kSwin:
      return fmt::format("swin:depths={},hidden={},heads={},image={}", m.stages, m.hidden, m.heads,
                         m.seq);
    case Form::kConvolution: return fmt::format("resnet:layers={},image={}", m.depth, m.seq);
    case Form::kUnbuilt: break;
  }
  return invalid_input(fmt::format("the model '{}' has no builder", m.name));
}

}  // namespace tessera
