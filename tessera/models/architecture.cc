#include "tessera/models/architecture.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>

#include "tessera/base/text.h"
#include "tessera/models/architecture_table.h"

namespace tessera {
namespace {

bool separates(char c) { return c == '-' || c == '_' || c == ' '; }

// A name in lower case without blanks, hyphens and underscores. begins[i] is true if one of these
// preceded character i, or i is 0.
struct Plain {
  std::string text;
  std::vector<bool> begins;
};

Plain plain(std::string_view name) {
  Plain out;
  bool separated = true;
  for (const char c : name) {
    if (separates(c)) {
      separated = true;
      continue;
    }
    out.text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    out.begins.push_back(std::exchange(separated, false));
  }
  return out;
}

bool digit(char c) { return c >= '0' && c <= '9'; }

// Returns the number of layers at the end of a name: 12 for "...-12L", 7 for "...-proxy7L", and 0
// for other names.
int64_t layers_in_name(std::string_view name) {
  if (name.empty() || (name.back() != 'L' && name.back() != 'l')) return 0;
  name.remove_suffix(1);
  size_t start = name.size();
  while (start > 0 && digit(name[start - 1])) --start;
  const std::string_view before = name.substr(0, start);
  if (start == name.size() || !(before.ends_with('-') || before.ends_with("proxy"))) return 0;
  return parse_int(name.substr(start)).value_or(0);
}

double matrices(const Architecture& model) { return model.form == Form::kLlama ? 3 : 2; }

// Returns the number of parameters of the matrix products of one block's attention.
double attention_parameters(const Architecture& m) {
  const auto hidden = static_cast<double>(m.hidden);
  const double head = m.head_dim > 0 ? static_cast<double>(m.head_dim)
                                     : hidden / static_cast<double>(std::max<int64_t>(m.heads, 1));
  const double queries = head * static_cast<double>(m.heads);
  const double keys = head * static_cast<double>(m.kv_heads > 0 ? m.kv_heads : m.heads);
  const auto through = [hidden](double width, int64_t rank) {
    const auto r = static_cast<double>(rank);
    return rank > 0 ? r * (hidden + width) : hidden * width;
  };
  return through(queries, m.q_rank) + through(2 * keys, m.kv_rank) + queries * hidden;
}

// Returns the number of parameters of a hybrid, where each block with experts counts `experts` of
// them. As in published numbers, the parts for multi-token prediction are not counted.
double count_hybrid(const Architecture& m, double experts) {
  const auto real = [](int64_t value) { return static_cast<double>(value); };
  const double hidden = real(m.hidden), inner = m.latent > 0 ? real(m.latent) : hidden;
  const double values = real(m.ssm_heads * kStateHeadDim);
  const double keys = real(2 * kStateGroups * kState);
  const auto block = [&](char letter) {
    switch (letter) {
      case 'M': return hidden * (3 * values + keys + real(m.ssm_heads));
      case '*': return attention_parameters(m);
      case 'E':
        return experts * 2 * inner * real(m.ffn) + 2 * hidden * real(m.shared_ffn) +
               (m.latent > 0 ? 2 * hidden * inner : 0) + hidden * real(m.experts);
      default: return 2 * hidden * real(m.ffn);
    }
  };
  double total = real(m.vocab) * hidden * (m.tied ? 1 : 2);
  for (int64_t i = 0; i < m.layers; ++i)
    total += block(m.pattern[static_cast<size_t>(i) % m.pattern.size()]);
  return total;
}

double count(const Architecture& m, double experts) {
  if (m.form == Form::kHybrid) return count_hybrid(m, experts);
  const auto hidden = static_cast<double>(m.hidden), ffn = static_cast<double>(m.ffn);
  const auto layers = static_cast<double>(m.layers);
  double total = static_cast<double>(m.vocab) * hidden * (m.tied ? 1 : 2);
  if (m.form != Form::kMixture) {
    // T5 has `layers` blocks in the encoder and in the decoder; a block of the decoder has two
    // attentions.
    const double blocks = m.form == Form::kT5 ? 2 : 1, attentions = m.form == Form::kT5 ? 3 : 1;
    return total +
           layers * (attentions * attention_parameters(m) + blocks * matrices(m) * hidden * ffn);
  }
  const auto inner = static_cast<double>(m.latent > 0 ? m.latent : m.hidden);
  const double block = attention_parameters(m) + experts * 3 * inner * ffn +
                       3 * hidden * static_cast<double>(m.shared_ffn) +
                       (m.latent > 0 ? 2 * hidden * inner : 0) +
                       hidden * static_cast<double>(m.experts);
  const double plain_block =
      attention_parameters(m) + 3 * hidden * static_cast<double>(m.dense_ffn);
  const auto plain_blocks = static_cast<double>(m.dense_layers);
  return total + (layers - plain_blocks) * block + plain_blocks * plain_block;
}

}  // namespace

void cut_to_layers(Architecture& model, int64_t layers) {
  if (layers < model.layers)
    model.dense_layers = (model.dense_layers * layers + model.layers - 1) / model.layers;
  model.layers = layers;
}

bool has_experts(const Architecture& model) {
  return model.form == Form::kMixture || (model.form == Form::kHybrid && model.experts > 0);
}

bool takes_images(const Architecture& model) {
  return model.form == Form::kSwin || model.form == Form::kConvolution;
}

double parameter_count(const Architecture& model) {
  if (model.parameters > 0) return model.parameters;
  return count(model, static_cast<double>(model.experts));
}

double active_parameter_count(const Architecture& model) {
  if (model.parameters > 0) return model.parameters;
  return count(model, static_cast<double>(model.top_k));
}

namespace {

bool letter(char c) { return c >= 'a' && c <= 'z'; }

// Returns the word at `at`: the letters up to the next character that is no letter or begins a new
// word.
std::string_view word_at(const Plain& name, size_t at) {
  size_t end = at;
  while (end < name.text.size() && letter(name.text[end]) && (end == at || !name.begins[end]))
    ++end;
  return std::string_view(name.text).substr(at, end - at);
}

bool among(const std::vector<std::string>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Returns the name without the word with which a publisher precedes it ("Meta-").
std::string_view without_words_before(std::string_view name) {
  const size_t end = name.find_first_of("-_ ");
  if (end == std::string_view::npos) return name;
  return among(architecture_table().before, lower_case(name.substr(0, end))) ? name.substr(end + 1)
                                                                             : name;
}

// Returns whether the name begins with `known` as a complete name. Nothing may follow, or one of
// these: a separate word that is not in the table's list `other`; letters directly after `known`
// that are a word of the list `glued`. If `number_may_follow`, which is set for series, any
// separate word or a digit directly after `known` may follow, too.
bool names_it(const Plain& name, std::string_view known, bool number_may_follow) {
  const size_t end = known.size();
  if (!name.text.starts_with(known)) return false;
  if (end == name.text.size()) return true;
  const ArchitectureTable& table = architecture_table();
  const std::string_view word = word_at(name, end);
  if (name.begins[end]) return number_may_follow || !among(table.other, word);
  if (!word.empty()) return among(table.glued, word);
  const char next = name.text[end];
  return number_may_follow || !(digit(next) || next == '.');
}

// Returns whether the name begins with `known`, the name of a model without a builder. If `known`
// has at most three characters, it must be a whole word.
bool names_unbuilt(const Plain& name, const std::string& known) {
  const size_t end = known.size();
  return name.text.starts_with(known) &&
         (end > 3 || end == name.text.size() || !letter(name.text[end]));
}

}  // namespace

std::optional<Architecture> find_architecture(std::string_view name) {
  const Plain wanted = plain(without_words_before(name));
  const Architecture* best = nullptr;
  for (const Architecture& known : architecture_table().models) {
    if (best != nullptr && known.name.size() <= best->name.size()) continue;
    const bool found = known.form == Form::kUnbuilt ? names_unbuilt(wanted, known.name)
                                                    : names_it(wanted, known.name, false);
    if (found) best = &known;
  }
  if (best == nullptr) return {};
  Architecture model = *best;
  if (const int64_t layers = layers_in_name(name); layers > 0 && layers < model.layers) {
    cut_to_layers(model, layers);
  }
  return model;
}

std::vector<std::string> architecture_titles() {
  std::vector<std::string> titles;
  for (const Architecture& known : architecture_table().models) {
    if (known.form != Form::kUnbuilt) titles.push_back(known.title);
  }
  return titles;
}

std::string nearest_architecture(std::string_view name) {
  return nearest(lower_case(without_words_before(name)), architecture_titles());
}

std::optional<Form> form_of_series(std::string_view name) {
  const Plain wanted = plain(name);
  for (const auto& [series, form] : architecture_table().series) {
    if (names_it(wanted, series, true)) return form;
  }
  return {};
}

double parameters_in_name(std::string_view name) {
  double found = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    if (!digit(name[i]) || (i > 0 && (digit(name[i - 1]) || name[i - 1] == '.'))) continue;
    size_t end = i;
    while (end < name.size() && (digit(name[end]) || name[end] == '.')) ++end;
    if (end == name.size()) break;
    const char unit = static_cast<char>(std::toupper(static_cast<unsigned char>(name[end])));
    const bool ends =
        end + 1 == name.size() || std::isalnum(static_cast<unsigned char>(name[end + 1])) == 0;
    if (!ends) continue;
    const double factor = unit == 'T' ? 1e12 : unit == 'B' ? 1e9 : unit == 'M' ? 1e6 : 0;
    const auto value = parse_double(name.substr(i, end - i));
    if (factor > 0 && value) found = std::max(found, *value * factor);
  }
  return found;
}

double active_parameters_in_name(std::string_view name) {
  const auto letter = [&](size_t at, char wanted) {
    return at < name.size() && std::toupper(static_cast<unsigned char>(name[at])) == wanted;
  };
  for (size_t i = 1; i + 1 < name.size(); ++i) {
    const bool begins = std::isalnum(static_cast<unsigned char>(name[i - 1])) == 0;
    if (!begins || !letter(i, 'A') || std::isdigit(static_cast<unsigned char>(name[i + 1])) == 0)
      continue;
    return parameters_in_name(name.substr(i + 1, name.find_first_of("-_ ", i) - i - 1));
  }
  return 0;
}

void usual_shape(double parameters, Architecture& model) {
  const double aspect = parameters < 1e10 ? 100 : 128;
  // parameters = 12 layers hidden^2 = 12 hidden^3 / aspect, where aspect = hidden / layers
  const double hidden = std::cbrt(parameters * aspect / 12);
  const double unit = hidden < 2048 ? 64 : hidden < 8192 ? 256 : 1024;
  model.hidden = static_cast<int64_t>(std::max(1.0, std::round(hidden / unit)) * unit);
  const auto width = static_cast<double>(model.hidden);
  model.layers = std::max<int64_t>(2, 2 * std::llround(parameters / (12 * width * width) / 2));
  model.heads = std::max<int64_t>(1, model.hidden / (model.hidden < 2048 ? 64 : 128));
}

}  // namespace tessera
