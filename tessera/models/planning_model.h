// Reads the text of a model for commands that plan, price or show a model and compute nothing with
// weights (inspect, simulate, plan, report, export of plans). Where such a text names a config.json
// that our families can only approximate, planning takes it and says in sentences what is not as
// the file asks. build_model refuses such a file, so a command that forgets this function is
// strict.
//
//   TESSERA_TRY(const PlanningModel read, read_for_planning("gemma-3-12b-it/config.json"));
//   for (const std::string& line : lines_of(read)) fmt::print(stderr, "{}\n", line);
//   TESSERA_TRY(const Model model, build_model(read.spec, batch));
//
// In planning a mixture of experts that drops no token has experts with equally many tokens, as
// frameworks price it, in place of experts with a slot for every token.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/base/result.h"

namespace tessera {

struct PlanningModel {
  std::string spec;  // a model's text that build_model takes; the given text if it names no file
  std::string file;  // the config.json; "" if the text names none
  // Sentences about requests of the file that the model does not fulfil: "logits are not capped".
  // Empty: it is exact.
  std::vector<std::string> approximations = {};
  // Sentences about parts of the file that transformers leaves out too.
  std::vector<std::string> remarks = {};
  // The length of sequences, if it comes from the file and not from a key of the text; else 0.
  int64_t file_seq = 0;
  // The dtype of the file's weights, with which training usually computes, if the file names one.
  std::optional<DType> stored_dtype = {};
};

// A file's sequences that are longer than this are worth a line, since few train with them.
inline constexpr int64_t kLongSequence = 8192;

// Reads a model's text. Only a config.json, or the folder with it, is read and checked here;
// other texts are left to build_model. Returns the errors of parse_huggingface_config, or that the file cannot be read.
Result<PlanningModel> read_for_planning(std::string_view text);
// Returns the lines that a command should print on standard error before its answer:
// "approximate: logits are not capped", "sequence length 40,960 from config.json; ...".
std::vector<std::string> lines_of(const PlanningModel& model);

// Returns the dtype that the config.json of a model's text gives its weights; none if the text names
// no such file, or the file no such dtype.
Result<std::optional<DType>> stored_dtype(std::string_view text);

}  // namespace tessera
