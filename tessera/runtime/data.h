// Training text: any files, bytes as tokens. Files are memory-mapped; which text a sequence sees
// depends on (seed, step, sequence) alone, so every plan trains on the same data, and a rank reads
// only the region it needs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

// The regular files that a glob names, sorted by path, each once. Within one component of the path
// the wildcards are those of glob_match (base/text.h), a component `**` is any number of folders.
// Wildcards pass over names that start with a dot, and over links to folders.
// Error: a folder that cannot be read.
Result<std::vector<std::string>> match_files(const std::string& glob);

class TextData {
 public:
  // Files sorted by path, each once. Errors: a glob that matches no file, a file that cannot be
  // read, no file longer than `seq` bytes. Shorter files are left out.
  static Result<TextData> open(const std::vector<std::string>& globs, int64_t seq);
  ~TextData();
  TextData(TextData&&) noexcept;
  TextData& operator=(TextData&&) noexcept;

  int64_t files() const;  // in use
  int64_t bytes() const;  // of these
  // Token `offset` + i of sequence `sequence` in step `step`, for i in [0, count): offsets 0..seq
  // (targets are shifted by one). A window lies inside one file; files are drawn in proportion to
  // the windows they hold. Thread-safe.
  void read(int64_t seed, int64_t step, int64_t sequence, int64_t offset, int64_t count,
            int64_t* out) const;

 private:
  TextData();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
