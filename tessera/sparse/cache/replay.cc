#include "tessera/sparse/cache/replay.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/one_line.h"
#include "tessera/base/permutation.h"
#include "tessera/base/philox.h"
#include "tessera/base/text.h"
#include "tessera/base/text_file.h"
#include "tessera/base/toml_reader.h"
#include "tessera/base/zipf.h"

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
  constexpr int64_t kLargest = (int64_t{1} << 32) - 3;  // the largest row number of a cached table
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
      if (!id || *id < 0 || *id > kLargest) {
        return invalid_input(fmt::format("{}:{}: expected an id from 0 to {}, found '{}'", name,
                                         number, kLargest, short_line(line.substr(0, length), 60)));
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
  TESSERA_TRY(const std::string text, read_text_file(path, kMostDataTextBytes));
  return parse_lookup_trace(text, path);
}

Result<ZipfTrace> parse_zipf_trace(std::string_view text) {
  TESSERA_TRY(const Call call, parse_call(text));
  ZipfTrace trace;
  const auto whole = [&](const std::string& key, const std::string& value, int64_t least,
                         int64_t most, int64_t& out) -> Status {
    const auto number = parse_int(value);
    if (!number || *number < least || *number > most) {
      return invalid_input(fmt::format("{}: expected {} from {} to {}, found '{}'", call.name, key,
                                       least, most, short_line(value, 60)));
    }
    out = *number;
    return {};
  };
  for (const auto& [key, value] : call.arguments) {
    constexpr int64_t kMost = int64_t{1} << 31;
    if (key == "rows") {
      TESSERA_TRY_VOID(whole(key, value, 1, kMost, trace.rows));
    } else if (key == "batches") {
      TESSERA_TRY_VOID(whole(key, value, 1, kMost, trace.batches));
    } else if (key == "batch") {
      TESSERA_TRY_VOID(whole(key, value, 1, kMost, trace.batch));
    } else if (key == "seed") {
      TESSERA_TRY_VOID(whole(key, value, 0, kMost, trace.seed));
    } else if (key == "exponent") {
      const auto number = parse_double(value);
      if (!number || !(*number >= 0 && *number <= 10)) {
        return invalid_input(fmt::format("{}: expected exponent from 0 to 10, found '{}'",
                                         call.name, short_line(value, 60)));
      }
      trace.exponent = *number;
    } else {
      return invalid_input(
          fmt::format("{}: unknown key '{}'{}", call.name, short_line(key, 60),
                      did_you_mean(key, {"rows", "batches", "batch", "seed", "exponent"})));
    }
  }
  if (call.name != "zipf" || trace.rows == 0) {
    return invalid_input(
        fmt::format("expected 'zipf:rows=N,...', found '{}'", short_line(text, 60)));
  }
  return trace;
}

LookupTrace make_trace(const ZipfTrace& what) {
  const Zipf zipf(what.rows, what.exponent);
  const Philox philox{static_cast<uint64_t>(what.seed), 0};
  LookupTrace trace;
  std::vector<int64_t> ids(static_cast<size_t>(what.batch));
  for (int64_t batch = 0; batch < what.batches; ++batch) {
    for (int64_t i = 0; i < what.batch; ++i) {
      const int64_t rank = zipf(philox, static_cast<uint64_t>(batch * what.batch + i));
      ids[static_cast<size_t>(i)] = permuted(rank, what.rows, what.seed, "rows", 0);
    }
    trace.add(ids);
  }
  return trace;
}

int64_t default_window(const LookupTrace& trace, int64_t slots) {
  int64_t rows = 0;
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < trace.batches(); ++i) {
    const auto batch = trace.batch(i);
    ids.assign(batch.begin(), batch.end());
    std::sort(ids.begin(), ids.end());
    rows += std::unique(ids.begin(), ids.end()) - ids.begin();
  }
  return rows == 0 ? 1 : (4 * slots * trace.batches() + rows - 1) / rows;
}

Result<CacheCounts> replay(const LookupTrace& trace, const CacheOptions& cache,
                           const ReplayOptions& options) {
  TESSERA_TRY(CacheIndex index, CacheIndex::make(cache));
  int64_t window = options.window;
  if (window < 0) window = default_window(trace, index.slots());
  if (index.policy().whole_future) window = trace.batches();
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
