// Text form of programs (docs/reference/program-format.md), for people, golden tests and `tessera
// inspect`. If a program is printed and the text parsed, the result equals the program. Tensors and
// ops have the names of the graph that the program computes.
#pragma once

#include <string>
#include <string_view>

#include "tessera/program/program.h"

namespace tessera {

std::string to_text(const Program& program, const Graph& graph);
Result<Program> parse_program(std::string_view text, const Graph& graph,
                              std::string_view file = "<program>");

// Returns one instruction's line, without indentation.
std::string to_text(const Instruction& instruction, const Program& program, const Graph& graph);
// Returns a short name for messages: "compute blocks.0.up", "issue #5", "wait #5".
std::string label(const Instruction& instruction, const Graph& graph);

}  // namespace tessera
