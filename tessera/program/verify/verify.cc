#include "tessera/program/verify/verify.h"

#include <fmt/format.h>

#include "tessera/program/verify/interpretation.h"

namespace tessera {

std::string Rejection::to_string() const {
  std::string out = rule + ":";
  if (rank >= 0) out += fmt::format(" rank {},", rank);
  if (!instruction.empty()) out += fmt::format(" {},", instruction);
  if (!tensor.empty()) out += fmt::format(" tensor {},", tensor);
  return out + " " + message;
}

std::vector<Rejection> verify(const Graph& graph, const std::vector<Program>& programs,
                              const VerifyOptions& options) {
  std::vector<Rejection> rejections;
  std::vector<verifying::PreparedProgram> prepared;
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    prepared.push_back(verifying::prepare(graph, programs, rank, options, rejections));
    if (rejections.size() >= verifying::kMaxRejections) break;
  }
  if (!rejections.empty()) return rejections;
  if (verifying::interpret(graph, prepared, false, rejections) && options.blocking)
    verifying::interpret(graph, prepared, true, rejections);
  return rejections;
}

}  // namespace tessera
