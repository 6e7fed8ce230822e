#include "tessera/predict/infer_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/base/text.h"
#include "tessera/predict/assumptions.h"

namespace tessera {
namespace {

// Returns whether the sizes in the row show that its model is not the known model of that name.
bool contradicts(const Row& row, const Architecture& known) {
  if (row.hidden && *row.hidden != known.hidden) return true;
  if (row.layers || row.hidden || !row.params) return false;
  const double ratio = *row.params / parameter_count(known);
  return ratio < 0.7 || ratio > 1.4;
}

// Returns whether the name, in lower case, has "moe" at the end of a word: "gshard-moe-10b",
// "openmoe" and "moe10b" do, "amoebanet" does not.
bool has_word_moe(const std::string& name) {
  for (size_t at = name.find("moe"); at != std::string::npos; at = name.find("moe", at + 1)) {
    if (at + 3 == name.size() || name[at + 3] < 'a' || name[at + 3] > 'z') return true;
  }
  return false;
}

bool says_mixture(const Row& row) {
  return row.ep.value_or(1) > 1 || has_word_moe(lower_case(row.model)) ||
         active_parameters_in_name(row.model) > 0;
}

// Returns kLlama (gated) or kGpt (not gated). A model with fewer key heads than heads is kLlama.
// For others takes the form whose number of parameters is nearer to the stated one. If the
// parameters or ffn are not stated, takes kLlama only if ffn is stated and is not 4 hidden.
Form form_by_sizes(const Row& row, Architecture model) {
  if (row.kv_heads && row.heads && *row.kv_heads < *row.heads) return Form::kLlama;
  if (!row.ffn || !row.params)
    return row.ffn && *row.ffn != 4 * model.hidden ? Form::kLlama : Form::kGpt;
  const auto miss = [&](Form form) {
    model.form = form;
    model.tied = form == Form::kGpt;
    return std::abs(std::log(parameter_count(model) / *row.params));
  };
  return miss(Form::kLlama) < miss(Form::kGpt) ? Form::kLlama : Form::kGpt;
}

// Returns the number of heads of a model whose row states none. The size of a head is the first
// usual size that divides `hidden`.
int64_t usual_heads(int64_t hidden) {
  // The models of the Megatron-LM paper (2019) and the GPT-3 of hidden size 1,536 have heads of 96.
  for (const int64_t known : {1536, 1920, 2304, 3072}) {
    if (hidden == known) return hidden / 96;
  }
  const auto sizes = hidden < 2048 ? std::vector<int64_t>{64, 96, 128, 80}
                                   : std::vector<int64_t>{128, 96, 64, 120, 80, 100};
  for (const int64_t size : sizes) {
    if (hidden % size == 0) return hidden / size;
  }
  for (int64_t heads = std::max<int64_t>(1, hidden / 128); heads > 1; --heads) {
    if (hidden % heads == 0) return heads;
  }
  return 1;
}

// Sets `experts` and `top_k` of an unknown mixture. `experts` follows from the number of
// parameters, and `top_k` from the number of active parameters in the name. Where these are not
// known, takes the usual numbers of assumptions.toml.
void usual_experts(const Row& row, Architecture& model, std::vector<std::string>& reasons) {
  model.experts = std::max(assumed_whole("usual_experts"), row.ep.value_or(1));
  model.top_k = assumed_whole("usual_top_k");
  const double active = active_parameters_in_name(row.model);
  const double all = row.params.value_or(active > 0 ? parameters_in_name(row.model) : 0);
  const double an_expert = 3.0 * static_cast<double>(model.hidden) *
                           static_cast<double>(model.ffn) * static_cast<double>(model.layers);
  Architecture none = model;
  none.experts = 0;
  const auto in_experts = [&](double parameters) {
    return std::llround((parameters - parameter_count(none)) / an_expert);
  };
  if (active > 0) model.top_k = std::max<int64_t>(1, in_experts(active));
  if (all > 0 && in_experts(all) > 1) model.experts = in_experts(all);
  model.experts = std::max(model.top_k, model.experts);
  reasons.push_back(fmt::format("{} experts, {} a token", model.experts, model.top_k));
}

void take_sizes(const Row& row, Architecture& model) {
  if (row.layers) cut_to_layers(model, *row.layers);
  if (row.hidden) model.hidden = *row.hidden;
  if (row.heads && *row.heads != model.heads) {
    model.heads = *row.heads;
    model.kv_heads = row.kv_heads.value_or(*row.heads);
    // With the stated number of heads the size of a head is hidden / heads, except with latent
    // attention, whose head size is kept.
    if (model.q_rank == 0 && model.kv_rank == 0) model.head_dim = 0;
  }
  if (row.kv_heads && model.kv_rank == 0) model.kv_heads = *row.kv_heads;
  if (row.ffn) model.ffn = *row.ffn;
  if (row.vocab) model.vocab = *row.vocab;
}

// Sets the sizes that neither the name nor the row determines.
Status complete(const Row& row, Architecture& model, bool form_known,
                std::vector<std::string>& reasons) {
  if (model.hidden == 0 || model.layers == 0) {
    // A mixture whose name tells its active parameters gets the layers and the hidden size of a
    // dense model with so many parameters. Its experts are narrower than that model's MLP (ffn
    // below).
    const double active = row.hidden ? 0 : active_parameters_in_name(row.model);
    const double parameters =
        active > 0 ? active : row.params.value_or(parameters_in_name(row.model));
    if (parameters <= 0) {
      return invalid_input(fmt::format(
          "the model '{}' is not known, and neither layers and hidden nor parameters are stated",
          row.model));
    }
    if (model.hidden > 0) {
      const auto width = static_cast<double>(model.hidden);
      model.layers = std::max<int64_t>(1, std::llround(parameters / (12 * width * width)));
    } else {
      const int64_t layers = model.layers;
      usual_shape(parameters, model);
      if (layers > 0) model.layers = layers;
    }
    reasons.push_back(fmt::format("{} layers of {}, usual for {:.3g} parameters", model.layers,
                                  model.hidden, parameters));
  }
  if (model.heads == 0) {
    model.heads = row.heads.value_or(usual_heads(model.hidden));
    if (!row.heads) reasons.push_back(fmt::format("{} heads", model.heads));
  }
  if (model.kv_heads == 0) model.kv_heads = row.kv_heads.value_or(model.heads);
  if (model.vocab == 0) {
    model.vocab = assumed_whole("usual_vocabulary");
    reasons.push_back(fmt::format("vocabulary {}", model.vocab));
  }
  if (!form_known) {
    model.form = form_by_sizes(row, model);
    model.tied = model.form == Form::kGpt;
    reasons.emplace_back(model.form == Form::kLlama ? "blocks as of llama" : "blocks as of gpt");
  }
  if (model.ffn == 0 && model.form == Form::kMixture && active_parameters_in_name(row.model) > 0) {
    model.ffn = (model.hidden / 3 + 63) / 64 * 64;
    reasons.push_back(fmt::format("ffn {}", model.ffn));
  }
  if (model.ffn == 0) {
    model.ffn = model.form == Form::kLlama || model.form == Form::kMixture
                    ? (model.hidden * 8 / 3 + 255) / 256 * 256
                    : 4 * model.hidden;
    if (!row.ffn) reasons.push_back(fmt::format("ffn {}", model.ffn));
  }
  return {};
}

Status check_architecture(const Architecture& model) {
  if (model.head_dim == 0 && model.hidden % model.heads != 0) {
    return invalid_input(
        fmt::format("{} heads do not divide hidden {}", model.heads, model.hidden));
  }
  if (model.heads % model.kv_heads != 0) {
    return invalid_input(
        fmt::format("{} key heads do not divide {} heads", model.kv_heads, model.heads));
  }
  return {};
}

}  // namespace

Result<Architecture> infer_model(const Row& row, std::vector<std::string>& reasons) {
  Architecture model;
  bool form_known = false;
  auto known = find_architecture(row.model);
  // Rows may name the model only "ResNet" and have its depth in the column `layers`.
  if (known && known->name == "resnet" && row.layers)
    known = find_architecture(fmt::format("resnet{}", *row.layers));
  if (known) {
    if (known->form == Form::kUnbuilt) {
      return invalid_input(
          fmt::format("the model '{}' is {}: no builder", row.model, known->remark));
    }
    if (takes_images(*known)) {
      reasons.push_back(fmt::format("sizes of {} by name", known->name));
      if (!known->remark.empty()) reasons.push_back(known->remark);
      model = *known;
      model.name = row.model;
      if (row.seq) model.seq = *row.seq;
      return model;
    }
    if (!contradicts(row, *known)) {
      model = *known;
      if (!row.layers || !row.hidden) {
        reasons.push_back(fmt::format("sizes of {} by name", model.name));
      }
      if (!model.remark.empty()) reasons.push_back(model.remark);
    } else {
      model.form = known->form;
      model.tied = known->tied;
      model.vocab = known->vocab;
    }
    form_known = true;
  } else if (const auto form = form_of_series(row.model)) {
    model.form = *form;
    model.tied = *form != Form::kLlama && *form != Form::kMixture;
    // A name with "GPT" does not determine the form if the row has fewer key heads than heads, as a
    // GPT never has.
    form_known = !(row.kv_heads && row.heads && *row.kv_heads < *row.heads && *form == Form::kGpt);
  }
  model.name = row.model;
  take_sizes(row, model);
  if (says_mixture(row) && !has_experts(model)) {
    model.form = Form::kMixture;
    model.tied = false;
    form_known = true;
  }
  TESSERA_TRY_VOID(complete(row, model, form_known, reasons));
  if (model.form == Form::kMixture && model.experts == 0) usual_experts(row, model, reasons);
  TESSERA_TRY_VOID(check_architecture(model));
  return model;
}

}  // namespace tessera
