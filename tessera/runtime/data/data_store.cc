#include "tessera/runtime/data/data_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/text.h"
#include "tessera/runtime/step/ranks.h"

namespace tessera {
namespace {

// The tag of the store's messages. It differs from the tags of programs, which count from 0, and
// from the tag in ranks.cc.
constexpr int64_t kStoreTag = (1 << 30) + 1;

// Returns any dtype with this number of bytes. Which one does not matter, because numbers are
// copied without conversion.
DType of_width(int64_t bytes) {
  switch (bytes) {
    case 1: return DType::kUInt8;
    case 2: return DType::kFloat16;
    case 4: return DType::kFloat32;
    default: return DType::kFloat64;
  }
}

comm::ArrayView view_of(const std::byte* data, const Box& box) {
  const std::vector<int64_t> strides = row_major_strides(box.shape());
  return {const_cast<std::byte*>(data), box, strides};
}

// A region that a rank loads in each step; `input` is the number of the input in the source's list
// of inputs.
struct Wanted {
  size_t input = 0;
  Box region;
};

// Says how the samples of an input are cut into cells, and which ranks keep which cell.
struct Kept {
  std::string name;
  Box sample;
  int64_t samples = 0, number_bytes = 1;
  size_t leading = 0;
  std::vector<Box> cells;
  std::vector<std::vector<int>> owners;  // by cell: the ranks that share it
  std::vector<int> cell_of;              // by rank: number of its cell; -1: none
  std::vector<std::byte> numbers;  // cells of the samples that this rank keeps, one after the other

  bool keeps(int rank, int64_t sample_number) const {
    const int cell = cell_of[static_cast<size_t>(rank)];
    if (cell < 0) return false;
    const std::vector<int>& turns = owners[static_cast<size_t>(cell)];
    return turns[static_cast<size_t>(sample_number) % turns.size()] == rank;
  }
  const Box& cell(int rank) const {
    return cells[static_cast<size_t>(cell_of[static_cast<size_t>(rank)])];
  }
  int64_t cell_bytes(int rank) const { return cell(rank).volume() * number_bytes; }
  // Returns the place of the sample among all samples that `rank` keeps. `rank` must keep
  // the sample.
  int64_t place(int rank, int64_t sample_number) const {
    const auto turns = static_cast<int64_t>(
        owners[static_cast<size_t>(cell_of[static_cast<size_t>(rank)])].size());
    return sample_number / turns;
  }
  int64_t kept_samples(int rank) const {
    int64_t count = 0;
    for (int64_t n = 0; n < samples; ++n) count += keeps(rank, n) ? 1 : 0;
    return count;
  }
};

// Returns the borders of the cells of a dim, one between each two consecutive intervals: the middle
// of their overlap or gap. Returns {} if an interval contains another one.
std::vector<int64_t> borders(const std::set<std::pair<int64_t, int64_t>>& intervals, int64_t size) {
  std::vector<int64_t> out{0};
  int64_t begin = -1, end = -1;
  for (const auto& [b, e] : intervals) {
    if (begin >= 0) {
      if (b <= begin || e <= end) return {};
      out.push_back((end + b) / 2);
      if (out.back() <= out[out.size() - 2] || out.back() >= size) return {};
    }
    begin = b;
    end = e;
  }
  out.push_back(size);
  return out;
}

// Cuts the samples into cells. `parts` has, for each rank, the part of a sample that the rank
// loads. For a rank that loads no part the box has no dims and `loads` is false.
void cut_into_cells(const std::vector<Box>& parts, const std::vector<bool>& loads, Kept& kept) {
  const size_t rank = kept.sample.rank();
  std::vector<std::vector<int64_t>> cuts(rank);
  bool grid = true;
  for (size_t d = 0; d < rank; ++d) {
    std::set<std::pair<int64_t, int64_t>> intervals;
    for (size_t r = 0; r < parts.size(); ++r) {
      if (loads[r]) intervals.emplace(parts[r].dims[d].begin, parts[r].dims[d].end());
    }
    cuts[d] = borders(intervals, kept.sample.dims[d].size);
    grid = grid && !cuts[d].empty();
  }
  const auto cell_at = [&](const Box& part) {
    Box cell = kept.sample;
    for (size_t d = 0; d < rank && grid; ++d) {
      // The rank's cell is the one that contains the middle of the rank's part.
      const int64_t middle = part.dims[d].begin + part.dims[d].size / 2;
      const auto above = std::upper_bound(cuts[d].begin() + 1, cuts[d].end() - 1, middle);
      cell.dims[d] = {*(above - 1), *above - *(above - 1)};
    }
    return cell;
  };
  kept.cell_of.assign(parts.size(), -1);
  for (size_t r = 0; r < parts.size(); ++r) {
    if (!loads[r]) continue;
    const Box cell = cell_at(parts[r]);
    const auto known = std::find(kept.cells.begin(), kept.cells.end(), cell);
    kept.cell_of[r] = static_cast<int>(known - kept.cells.begin());
    if (known == kept.cells.end()) {
      kept.cells.push_back(cell);
      kept.owners.emplace_back();
    }
    kept.owners[static_cast<size_t>(kept.cell_of[r])].push_back(static_cast<int>(r));
  }
  int64_t covered = 0;
  for (const Box& cell : kept.cells) covered += cell.volume();
  if (!grid || covered == kept.sample.volume()) return;
  // Some cell would belong to no rank, so the samples are not cut: ranks keep whole samples
  // in turn.
  kept.cells.clear();
  kept.owners.clear();
  cut_into_cells(std::vector<Box>(parts.size(), kept.sample), loads, kept);
}

}  // namespace

struct DataStore::Impl {
  const SampleAccess& access;
  comm::Communicator& world;
  const Graph* graph = nullptr;
  std::vector<std::string> names;
  std::vector<std::vector<Wanted>> wanted;  // by rank
  std::vector<Kept> kept;                   // by input
  int64_t moved = 0;

  struct Message {
    comm::Handle handle = comm::kNoHandle;
    std::vector<std::byte> bytes;
  };
  // The samples of a step, which are on their way or have arrived.
  struct Step {
    int64_t number = 0;
    std::vector<std::vector<SamplePiece>> pieces;              // by region that this rank loads
    std::vector<std::vector<std::vector<std::byte>>> numbers;  // by region and piece
    std::map<int, Message> sent, received;                     // by the rank at the other end
  };
  std::optional<Step> current, next;

  Impl(const SampleAccess& the_access, comm::Communicator& the_world)
      : access(the_access), world(the_world), names(the_access.inputs()) {}

  int me() const { return world.rank(); }
  const Tensor& tensor_of(size_t input) const {
    return graph->tensor(graph->find_tensor(names[input]));
  }

  void find_wanted(const Graph& the_graph, const Program& program) {
    graph = &the_graph;
    std::vector<int64_t> mine;
    std::set<std::vector<int64_t>> seen;
    for (const auto& [ref, block] : program.blocks) {
      for (const Instruction& instruction : block) {
        const auto* load = std::get_if<Load>(&instruction.body);
        if (load == nullptr) continue;
        const Tensor& tensor = the_graph.tensor(load->tensor);
        const auto name = std::find(names.begin(), names.end(), tensor.name);
        if (name == names.end()) continue;
        const int dim = micro_batch_dim_of(program, tensor);
        for (int64_t m = 0; m < program.micro_batches; ++m) {
          const Box region = at_micro_batch(program, load->region, dim, m);
          if (region.empty()) continue;
          std::vector<int64_t> numbers{name - names.begin(), static_cast<int64_t>(region.rank())};
          for (const Interval& interval : region.dims)
            numbers.insert(numbers.end(), {interval.begin, interval.size});
          if (seen.insert(numbers).second) mine.insert(mine.end(), numbers.begin(), numbers.end());
        }
      }
    }
    wanted.clear();
    for (const std::vector<int64_t>& list : comm::gather_lists(world, mine)) {
      std::vector<Wanted>& of_rank = wanted.emplace_back();
      for (size_t i = 0; i < list.size();) {
        Wanted one;
        one.input = static_cast<size_t>(list[i++]);
        const auto rank = static_cast<size_t>(list[i++]);
        for (size_t d = 0; d < rank; ++d, i += 2) one.region.dims.push_back({list[i], list[i + 1]});
        of_rank.push_back(std::move(one));
      }
    }
  }

  void share_out() {
    for (size_t input = 0; input < names.size(); ++input) {
      Kept one;
      one.name = names[input];
      one.sample = access.sample_box(one.name);
      one.samples = access.samples_of(one.name);
      one.number_bytes = access.bytes_of_number(one.name);
      one.leading = access.leading_dims(one.name);
      std::vector<Box> parts(wanted.size());
      std::vector<bool> loads(wanted.size(), false);
      for (size_t rank = 0; rank < wanted.size(); ++rank) {
        for (const Wanted& load : wanted[rank]) {
          if (load.input != input) continue;
          const auto leading = static_cast<std::ptrdiff_t>(one.leading);
          const Box part(Box::Dims(load.region.dims.begin() + leading, load.region.dims.end()));
          if (!loads[rank]) parts[rank] = part;
          loads[rank] = true;
          for (size_t d = 0; d < part.rank(); ++d) {
            Interval& all = parts[rank].dims[d];
            const int64_t begin = std::min(all.begin, part.dims[d].begin);
            all = {begin, std::max(all.end(), part.dims[d].end()) - begin};
          }
        }
      }
      cut_into_cells(parts, loads, one);
      kept.push_back(std::move(one));
    }
  }

  int64_t bytes_kept() const {
    int64_t bytes = 0;
    for (const Kept& one : kept) {
      if (one.cell_of[static_cast<size_t>(me())] >= 0)
        bytes += one.kept_samples(me()) * one.cell_bytes(me());
    }
    return bytes;
  }

  Status read_all(int64_t limit) {
    if (const int64_t bytes = bytes_kept(); bytes > limit) {
      return invalid_input(fmt::format(
          "data.store: expected at least {}, which rank {} keeps of the samples, found {}",
          format_bytes(bytes), me(), format_bytes(limit)));
    }
    for (Kept& one : kept) {
      if (one.cell_of[static_cast<size_t>(me())] < 0) continue;
      const int64_t bytes = one.cell_bytes(me());
      one.numbers.resize(static_cast<size_t>(one.kept_samples(me()) * bytes));
      for (int64_t n = 0; n < one.samples; ++n) {
        if (!one.keeps(me(), n)) continue;
        TESSERA_TRY_VOID(access.read_piece(one.name, {n, one.cell(me())},
                                           one.numbers.data() + one.place(me(), n) * bytes));
      }
    }
    return {};
  }

  // Calls f(load, piece, box, input) for each part that rank `from` keeps of the pieces that
  // `loads` and `pieces` state.
  template <class F>
  void each_part(int from, const std::vector<Wanted>& loads,
                 const std::vector<std::vector<SamplePiece>>& pieces, F&& f) const {
    for (size_t load = 0; load < loads.size(); ++load) {
      const Kept& of = kept[loads[load].input];
      for (size_t p = 0; p < pieces[load].size(); ++p) {
        const SamplePiece& piece = pieces[load][p];
        if (!of.keeps(from, piece.sample)) continue;
        const Box part = intersect(piece.box, of.cell(from));
        if (!part.empty()) f(load, p, part, of);
      }
    }
  }

  std::vector<std::vector<SamplePiece>> pieces_of(const std::vector<Wanted>& loads,
                                                  int64_t step) const {
    std::vector<std::vector<SamplePiece>> out;
    for (const Wanted& load : loads)
      out.push_back(access.pieces(step, tensor_of(load.input), load.region));
    return out;
  }

  // Returns a view of this rank's cell of a sample that this rank keeps.
  comm::ArrayView kept_view(const Kept& of, int64_t sample) const {
    return view_of(of.numbers.data() + of.place(me(), sample) * of.cell_bytes(me()), of.cell(me()));
  }

  static comm::ArrayView flat(std::vector<std::byte>& bytes) {
    return {bytes.data(), Box({{0, static_cast<int64_t>(bytes.size())}}), {1}};
  }

  Step issue(int64_t number) {
    static const comm::Label kLabel{"data store", "samples", "all ranks"};
    Step step;
    step.number = number;
    const std::vector<Wanted>& mine = wanted[static_cast<size_t>(me())];
    step.pieces = pieces_of(mine, number);
    for (size_t load = 0; load < mine.size(); ++load) {
      auto& numbers = step.numbers.emplace_back();
      for (const SamplePiece& piece : step.pieces[load]) {
        numbers.emplace_back(
            static_cast<size_t>(piece.box.volume() * kept[mine[load].input].number_bytes));
      }
    }
    for (int other = 0; other < world.size(); ++other) {
      if (other == me()) continue;
      size_t bytes = 0;
      each_part(other, mine, step.pieces, [&](size_t, size_t, const Box& part, const Kept& of) {
        bytes += static_cast<size_t>(part.volume() * of.number_bytes);
      });
      if (bytes == 0) continue;
      Message& message = step.received[other];
      message.bytes.resize(bytes);
      message.handle =
          world.issue_recv(other, kStoreTag, DType::kUInt8, flat(message.bytes), kLabel);
    }
    each_part(me(), mine, step.pieces, [&](size_t load, size_t p, const Box& part, const Kept& of) {
      const SamplePiece& piece = step.pieces[load][p];
      comm::copy_region(of_width(of.number_bytes), kept_view(of, piece.sample),
                        view_of(step.numbers[load][p].data(), piece.box), part);
    });
    for (int other = 0; other < world.size(); ++other) {
      if (other == me()) continue;
      const std::vector<Wanted>& theirs = wanted[static_cast<size_t>(other)];
      const auto pieces = pieces_of(theirs, number);
      std::vector<std::byte> bytes;
      each_part(me(), theirs, pieces, [&](size_t load, size_t p, const Box& part, const Kept& of) {
        const size_t before = bytes.size();
        bytes.resize(before + static_cast<size_t>(part.volume() * of.number_bytes));
        comm::copy_region(of_width(of.number_bytes), kept_view(of, pieces[load][p].sample),
                          view_of(bytes.data() + before, part), part);
      });
      if (bytes.empty()) continue;
      moved += static_cast<int64_t>(bytes.size());
      Message& message = step.sent[other];
      message.bytes = std::move(bytes);
      message.handle =
          world.issue_send(other, kStoreTag, DType::kUInt8, flat(message.bytes), kLabel);
    }
    return step;
  }

  void wait(Step& step) {
    for (auto& [other, message] : step.received) {
      world.wait(message.handle);
      const std::byte* at = message.bytes.data();
      each_part(other, wanted[static_cast<size_t>(me())], step.pieces,
                [&](size_t load, size_t p, const Box& part, const Kept& of) {
                  comm::copy_region(of_width(of.number_bytes), view_of(at, part),
                                    view_of(step.numbers[load][p].data(), step.pieces[load][p].box),
                                    part);
                  at += part.volume() * of.number_bytes;
                });
    }
    for (auto& [other, message] : step.sent) world.wait(message.handle);
    step.received.clear();
    step.sent.clear();
  }
};

DataStore::DataStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DataStore::~DataStore() = default;

Result<std::unique_ptr<DataStore>> DataStore::create(const DataSource& source, const Graph& graph,
                                                     const Program& program,
                                                     comm::Communicator& world, int64_t limit) {
  const SampleAccess* access = source.samples_one_by_one();
  TESSERA_CHECK(access != nullptr, "a data store of a source without samples");
  auto impl = std::make_unique<Impl>(*access, world);
  impl->find_wanted(graph, program);
  impl->share_out();
  TESSERA_TRY_VOID(agree(world, impl->read_all(limit)));
  return std::unique_ptr<DataStore>(new DataStore(std::move(impl)));
}

void DataStore::follow(const Graph& graph, const Program& program) {
  TESSERA_CHECK(!impl_->next, "samples are on their way for the program before");
  impl_->find_wanted(graph, program);
}

void DataStore::begin(int64_t step, bool more) {
  if (impl_->next && impl_->next->number == step) {
    impl_->current = std::move(impl_->next);
  } else {
    impl_->current = impl_->issue(step);
  }
  impl_->next.reset();
  impl_->wait(*impl_->current);
  if (more) impl_->next = impl_->issue(step + 1);
}

Status DataStore::load(int64_t step, const Tensor& tensor, const Box& region,
                       const kernels::Array& to) const {
  const Impl::Step& current = *impl_->current;
  TESSERA_CHECK(current.number == step, "samples of step {} for step {}", current.number, step);
  const std::vector<Wanted>& mine = impl_->wanted[static_cast<size_t>(impl_->me())];
  const auto load = std::find_if(mine.begin(), mine.end(), [&](const Wanted& one) {
    return impl_->names[one.input] == tensor.name && one.region == region;
  });
  TESSERA_CHECK(load != mine.end(), "'{}' is loaded where no program does", tensor.name);
  const auto& numbers = current.numbers[static_cast<size_t>(load - mine.begin())];
  return impl_->access.load_pieces(step, tensor, region, to,
                                   [&](size_t piece) { return numbers[piece].data(); });
}

int64_t DataStore::bytes_kept() const { return impl_->bytes_kept(); }
int64_t DataStore::bytes_moved() const { return impl_->moved; }

}  // namespace tessera
