#include "tessera/sparse/cache/replay.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/one_line.h"
#include "tessera/base/text.h"

namespace tessera::sparse {

std::span<const int64_t> LookupTrace::batch(int64_t i) const {
  const auto at = static_cast<size_t>(i);
  const int64_t begin = i == 0 ? 0 : ends[at - 1];
  return std::span(ids).subspan(static_cast<size_t>(begin), static_cast<size_t>(ends[at] - begin));
}

void LookupTrace::add(std::span<const int64_t> batch) {
  ids.insert(ids.end(), batch.begin(), batch.end());
  ends.push_back(std::ssize(ids));
}

int64_t LookupTrace::rows() const {
  return ids.empty() ? 0 : *std::max_element(ids.begin(), ids.end()) + 1;
}

std::vector<int64_t> LookupTrace::counts(int64_t rows) const {
  std::vector<int64_t> counts(static_cast<size_t>(rows));
  for (const int64_t id : ids) {
    if (id >= 0) ++counts[static_cast<size_t>(id)];
  }
  return counts;
}

Result<LookupTrace> parse_lookup_trace(std::string_view text, const std::string& name) {
  LookupTrace trace;
  std::vector<int64_t> batch;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.front() == '#') continue;
    batch.clear();
    while (!line.empty()) {
      const size_t length = std::min(line.find_first_of(" \t\r"), line.size());
      const auto id = parse_int(line.substr(0, length));
      if (!id || *id < 0) {
        return invalid_input(fmt::format("{}:{}: expected an id of at least 0, found '{}'", name,
                                         number, short_line(line.substr(0, length), 60)));
      }
      batch.push_back(*id);
      line = trim(line.substr(length));
    }
    trace.add(batch);
  }
  if (trace.ends.empty()) {
    return invalid_input(fmt::format("{}: expected a batch of ids a line, found no line", name));
  }
  return trace;
}

Result<LookupTrace> read_lookup_trace(const std::string& path) {
  TESSERA_TRY(const std::string text, read_file(path));
  return parse_lookup_trace(text, path);
}

Result<CacheCounts> replay(const LookupTrace& trace, const CacheOptions& cache,
                           const ReplayOptions& options) {
  TESSERA_TRY(CacheIndex index, CacheIndex::make(cache));
  const int64_t window = index.policy().whole_future ? trace.batches() : options.window;
  int64_t announced = 0;
  CacheBatch batch;
  index.warm(options.warm);
  for (int64_t i = 0; i < trace.batches(); ++i) {
    for (; announced < std::min(trace.batches(), i + 1 + window); ++announced) {
      TESSERA_TRY_VOID(index.announce(trace.batch(announced)));
    }
    TESSERA_TRY_VOID(index.begin(trace.batch(i), batch));
    index.finish(batch, options.changed);
  }
  return index.counts();
}

}  // namespace tessera::sparse
