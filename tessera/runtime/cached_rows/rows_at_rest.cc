#include "tessera/runtime/cached_rows/rows_at_rest.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "tessera/graph/pieces.h"
#include "tessera/runtime/initialise.h"

namespace tessera {

using kernels::Array;
using sparse::RowMove;

Status RowsAtRest::prepare(const CachedRowsWants& wants) {
  const RowCache& cache = wants.program->caches[static_cast<size_t>(wants.cache)];
  rows_ = cache.rows.size;
  const Program& program = *wants.program;
  for (size_t i = 0; i < cache.held.size(); ++i) {
    const Buffer &held = program.buffer(cache.held[i]), &rest = program.buffer(cache.rests[i]);
    Part part;
    part.held = held.id;
    part.slots = wants.memory(held.id);
    if (rest.tier != Tier::kDisk) part.rest = wants.memory(rest.id);
    part.bytes = rest.bytes() / rows_;
    part.dtype = held.dtype;
    part.at = row_bytes_;
    row_bytes_ += part.bytes;
    parts_.push_back(part);
  }
  record_.resize(static_cast<size_t>(row_bytes_));
  record_of_copier_.resize(static_cast<size_t>(row_bytes_));
  return parts_.front().rest == nullptr ? open_file(wants) : Status();
}

Status RowsAtRest::open_file(const CachedRowsWants& wants) {
  const char* folder = std::getenv("TMPDIR");
  std::string path =
      std::string(folder != nullptr && *folder != '\0' ? folder : "/tmp") + "/tessera.XXXXXX";
  if (mkdtemp(path.data()) == nullptr)
    return fault(fmt::format("disk tier: {}: {}", path, std::strerror(errno)));
  std::vector<std::pair<Tensor, Box>> begins;  // of each part: the whole table, and this rank's
                                               // region of it
  const Origins origins(*wants.graph);
  for (const Part& part : parts_) {
    const TensorId tensor = wants.program->buffer(part.held).tensor;
    Box region;
    for (const Home& home : wants.program->homes) {
      if (home.buffer == part.held) region = home.region;
    }
    const PieceOrigin origin = origins.of(tensor);
    begins.emplace_back(whole_of(wants.graph->tensor(tensor), origin), origin.in_whole(region));
  }
  const auto init = [this, seed = wants.seed, begins = std::move(begins)](int64_t row,
                                                                          std::byte* out) {
    for (size_t i = 0; i < parts_.size(); ++i) {
      const Tensor& tensor = begins[i].first;
      Box region = begins[i].second;
      region.dims[0] = {region.dims[0].begin + row, 1};
      initialise(tensor, region, seed,
                 Array::contiguous(out + parts_[i].at, parts_[i].dtype, region.shape()));
    }
  };
  const std::string file = path + "/rows";
  auto opened = sparse::FileRows::open(file, {rows_, row_bytes_}, init);
  unlink(file.c_str());
  rmdir(path.c_str());
  if (!opened) return fault("disk tier: " + opened.error().message);
  file_ = std::move(*opened);
  return {};
}

Status RowsAtRest::read_in(const std::vector<RowMove>& moves) {
  for (const RowMove& one : moves) {
    if (file_ != nullptr) TESSERA_TRY_VOID(file_->read(one.row, record_of_copier_.data()));
    for (const Part& part : parts_) {
      const std::byte* from =
          file_ != nullptr ? record_of_copier_.data() + part.at : part.rest + one.row * part.bytes;
      std::memcpy(part.slots + one.place * part.bytes, from, static_cast<size_t>(part.bytes));
    }
  }
  return {};
}

Status RowsAtRest::write_back(const std::vector<RowMove>& moves) const {
  std::vector<std::byte> record(file_ != nullptr ? static_cast<size_t>(row_bytes_) : 0);
  for (const RowMove& one : moves) {
    for (const Part& part : parts_) {
      std::byte* to = file_ != nullptr ? record.data() + part.at : part.rest + one.row * part.bytes;
      std::memcpy(to, part.slots + one.place * part.bytes, static_cast<size_t>(part.bytes));
    }
    if (file_ != nullptr) TESSERA_TRY_VOID(file_->write(one.row, record.data()));
  }
  return {};
}

const RowsAtRest::Part& RowsAtRest::part(BufferId held) const {
  return *std::find_if(parts_.begin(), parts_.end(),
                       [&](const Part& one) { return one.held == held; });
}

Status RowsAtRest::read(BufferId held, std::byte* out) {
  const Part& one = part(held);
  for (int64_t row = 0; row < rows_; ++row) {
    const std::byte* from = one.rest + row * one.bytes;
    if (file_ != nullptr) {
      TESSERA_TRY_VOID(file_->read(row, record_.data()));
      from = record_.data() + one.at;
    }
    std::memcpy(out + row * one.bytes, from, static_cast<size_t>(one.bytes));
  }
  return {};
}

Status RowsAtRest::write(BufferId held, const std::byte* in) {
  const Part& one = part(held);
  for (int64_t row = 0; row < rows_; ++row) {
    const std::byte* from = in + row * one.bytes;
    const auto size = static_cast<size_t>(one.bytes);
    if (file_ == nullptr) {
      std::memcpy(one.rest + row * one.bytes, from, size);
      continue;
    }
    TESSERA_TRY_VOID(file_->read(row, record_.data()));
    std::memcpy(record_.data() + one.at, from, size);
    TESSERA_TRY_VOID(file_->write(row, record_.data()));
  }
  return {};
}

}  // namespace tessera
