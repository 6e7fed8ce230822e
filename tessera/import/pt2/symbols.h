// Sizes that an archive leaves open (torch.export with dynamic shapes). A graph has fixed sizes, so
// each symbol gets a value before the program is read: that of the example with which the module was
// exported, or one that the user states for the batch or the length of sequences. Batch is the
// symbol of the first dim of the inputs, seq that of their second.
//
//   TESSERA_TRY_VOID(fix_symbols(document, {{"batch", 8}, {"seq", 4096}}));
//
// The document then is that of a module which was exported with these sizes.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tessera/base/result.h"

namespace tessera::pt2 {

using StatedSizes = std::map<std::string, int64_t, std::less<>>;  // by "batch" and "seq"

// Puts numbers in the place of symbols in the JSON of a program, and takes out the nodes that only
// compute or check symbols. Returns an error that names the size if the module fixes it, if the
// value is outside the range that the archive states, or if an expression is of an unknown form.
Status fix_symbols(nlohmann::json& document, const StatedSizes& stated);

// Returns the value of an expression as the format writes it,
// "Mul(Integer(2), Symbol('s0', positive=True, integer=True))".
Result<int64_t> value_of_expression(std::string_view text,
                                    const std::map<std::string, int64_t, std::less<>>& symbols);

}  // namespace tessera::pt2
