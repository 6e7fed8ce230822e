// Damaged files, and what a reader of untrusted bytes must do with any of them: it takes the file,
// or returns one line; it never crashes, and never holds more memory than a bound.
//
//   Fuzz fuzz("npy", {{"a.npy", good}});
//   fuzz.run([](const std::string& folder) -> Status {
//     TESSERA_TRY_VOID(TokenFile::open(folder + "/a.npy", TokenFormat::kNpy));
//     return {};
//   });
//
// A run is 1,000 rounds, or as many as TESSERA_FUZZ says. A round damages one of the files, by one
// or two changes, and calls the reader. Sanitizers report further faults by themselves: `make fuzz`
// builds this program with them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

// The most bytes of the heap that the program has held beyond those at reset_peak(). `operator new`
// is replaced in this program (memory.cc).
void reset_peak();
int64_t peak_bytes();

struct FuzzFile {
  std::string name, good;
  // Called after a change, so that not only a checksum catches it; empty: nothing is called.
  std::function<std::string(std::string)> seal = {};
};

class Fuzz {
 public:
  // `most_bytes`: the memory that the reader may hold at once.
  Fuzz(std::string kind, std::vector<FuzzFile> files, int64_t most_bytes = 16 << 20);
  ~Fuzz();
  Fuzz(const Fuzz&) = delete;
  Fuzz& operator=(const Fuzz&) = delete;

  // `read` gets the folder of the files. Fails the test at an error of several lines, with control
  // characters, or of more than kMostMessage bytes; at too much memory; and if fewer than a
  // twentieth of the rounds are refused, since the test would then show little.
  void run(const std::function<Status(const std::string& folder)>& read);

  static constexpr size_t kMostMessage = 2000;

 private:
  std::string damaged(std::string bytes);
  void change_bytes(std::string& bytes);
  void change_text(std::string& text);
  uint64_t below(uint64_t limit) { return random_() % limit; }

  std::string kind_, folder_;
  std::vector<FuzzFile> files_;
  int64_t most_bytes_;
  std::mt19937_64 random_;
};

}  // namespace tessera
