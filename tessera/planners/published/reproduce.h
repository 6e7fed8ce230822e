// Runs published planning algorithms on their published cost models, for `tessera reproduce`. Each
// published system has an algorithm (a pure function of tables, in a header of its own), a reader
// of instances (<system>_instance.cc) and a row of published_systems(). Files with instances have
// the format of docs/reference/reproduce.md.
//
// An instance may state what it expects:
//   { "source": "docs/strategies/terapipe.md section 5", "decimals": 0, ... keys of the system ...,
//     "cases": [ { "stages": 1, "expected": { "seconds": 64 } }, ... ] }
// Each case replaces keys of the instance. Expected values are compared with the answer: objects
// key by key (the answer may have more keys), lists item by item, numbers to 1e-9 of their size or,
// with the key `decimals` (which a case may have, too), to half a unit of that decimal.
//
//   const auto result = reproduce("terapipe", text, "slices.json", {});
//   if (!result->differences.empty()) ...
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/result.h"

namespace tessera::published {

// Called from time to time with a text on the current work: "batch 64".
using Progress = std::function<void(std::string_view)>;

struct Reproduction {
  std::string json;     // the answers as JSON, in one line
  std::string text;     // the answers as text for people
  int64_t checked = 0;  // number of values that were compared with expected ones
  // One line for each that differs: "cases[2].seconds: expected 64, found 65".
  std::vector<std::string> differences;
};
// Runs a system on an instance. Errors: an unknown system, a wrong instance (file and path of the
// key).
Result<Reproduction> reproduce(std::string_view system, std::string_view instance,
                               std::string_view file, const Progress& progress);

struct PublishedSystem {
  std::string name, summary, page;
};
std::vector<PublishedSystem> published_systems();
// Returns name and text of each worked example of a system that the program holds
// (tests/reproduce).
Result<std::vector<std::pair<std::string, std::string>>> worked_examples(std::string_view system);

// A statement of a publication, and whether `tessera reproduce` shows it (claims.toml).
struct Claim {
  std::string system, claim;
  // "exactly" | "simulated" | "not"
  std::string reproduced;
  std::vector<std::string> examples;  // the worked examples that show the claim
  std::string how;  // the command or test that shows it, or why it cannot be reproduced
};
Result<std::vector<Claim>> published_claims();

}  // namespace tessera::published
