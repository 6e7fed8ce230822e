#include "tessera/program/instantiate/instantiate.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

#include "tessera/plan/schedules/schedule.h"
#include "tessera/program/instantiate/parts.h"
#include "tessera/program/instructions.h"
#include "tessera/program/rows/row_caches.h"

namespace tessera {

void write_schedule(Program& program, const ResolvedPlan& plan) {
  const auto stages = program.stages.size();
  const std::vector<BlockRun>& row = plan.schedule[plan.row_of(program.rank)];
  program.schedule.reserve(row.size() + 2);
  program.schedule.push_back({BlockKind::kPrologue, 0});
  for (const BlockRun& run : row) {
    BlockRef block = block_of(run);
    const auto at = std::ranges::find(program.stages, StageId(block.chunk));
    const size_t smaller = program.smaller(run.micro_batch) ? stages : 0;
    block.chunk = static_cast<int32_t>(static_cast<size_t>(at - program.stages.begin()) + smaller);
    program.schedule.push_back({block, run.micro_batch});
  }
  program.schedule.push_back({BlockKind::kUpdate, 0});
}

int RankHandles::made(int handle, BlockRef block, size_t size) {
  std::vector<Made>& all = made_[handle];
  const auto bit = static_cast<unsigned>(size);
  const auto known = std::find_if(all.begin(), all.end(), [&](const Made& one) {
    return !block.once() && (one.sizes >> bit) == 0;
  });
  if (known == all.end()) {
    all.push_back({next++, block.once() ? 3U : 1U << bit});
    return all.back().handle;
  }
  known->sizes |= 1U << bit;
  return known->handle;
}

void RankHandles::fill_in_waits(Program& program, Ordinals& all_ordinals) const {
  for (auto& [ref, block] : program.blocks) {
    const unsigned sizes = ref.once() ? 3U : program.smaller(ref) ? 2U : 1U;
    std::vector<size_t>& from = all_ordinals[ref];
    std::vector<Instruction> filled;
    std::vector<size_t> ordinals;
    filled.reserve(block.size());
    for (size_t i = 0; i < block.size(); ++i) {
      const Wait* wait = std::get_if<Wait>(&block[i].body);
      if (wait == nullptr) {
        filled.push_back(std::move(block[i]));
        ordinals.push_back(from[i]);
        continue;
      }
      const auto made = made_.find(wait->handle);
      if (made == made_.end()) continue;
      for (const Made& one : made->second) {
        // A wait with lag 0 is only for what blocks of the same size of micro-batches issue. A wait
        // for an earlier run is for what blocks of either size issue, because that run may be of
        // the other size.
        if (wait->lag == 0 && (one.sizes & sizes) == 0) continue;
        filled.push_back({Wait{one.handle, wait->lag}, block[i].when, block[i].cause});
        ordinals.push_back(from[i]);
      }
    }
    block = std::move(filled);
    from = std::move(ordinals);
  }
}

namespace {

void find_places(Instantiating& r) {
  Program& out = r.out;
  size_t buffers = 0;
  for (const PlaceId id : r.in.plan->places_of(out.rank)) {
    const PlaceText& text = (*r.in.texts)[id.index()];
    r.places.push_back({id, &text, text.mesh.coordinates(out.rank), buffers});
    buffers += text.buffers.size();
    const auto& stages = r.in.plan->places[id.index()].stages;
    out.stages.insert(out.stages.end(), stages.begin(), stages.end());
  }
  std::sort(out.stages.begin(), out.stages.end());
  out.coordinates = r.places[0].coordinates;
}

// Adds a buffer that is large enough for the rank's region in the larger and in the smaller
// micro-batches. Both must be looked at, because a rank's region may be empty in the larger
// micro-batches and not empty in the smaller ones if it is cut by a step's piece too.
void add_buffer(Instantiating& r, const RankPlace& place, const TextBuffer& buffer) {
  Buffer b;
  b.id = BufferId(r.out.buffers.size());
  b.name = buffer.name;
  b.tensor = buffer.tensor;
  for (size_t size = 0; size < r.boxes.size(); ++size) {
    r.boxes[size].push_back(evaluate(buffer.region, place.text->mesh,
                                     (*r.in.sizes)[size].shapes[buffer.tensor.index()],
                                     place.coordinates));
    const std::vector<int64_t> shape = r.boxes[size].back().shape();
    b.shape.resize(shape.size());
    for (size_t i = 0; i < shape.size(); ++i) b.shape[i] = std::max(b.shape[i], shape[i]);
  }
  b.dtype = buffer.dtype;
  b.tier = buffer.tier;
  b.lifetime = buffer.persistent ? Lifetime::kPersistent
                                 : (buffer.accumulates ? Lifetime::kStep : Lifetime::kBlock);
  b.slots = buffer.slots;
  r.out.buffers.push_back(std::move(b));
}

// Makes a block of the program from the texts that all places of this rank have for the block.
// Instructions of several places are merged in the order in which the walk wrote them.
void write_block(Instantiating& r, BlockRef of_texts, size_t size) {
  Program& out = r.out;
  BlockRef ref = of_texts;
  if (!ref.once()) {  // its chunk is the number of the stage in the plan
    const auto stage = std::find(out.stages.begin(), out.stages.end(), StageId(ref.chunk));
    ref.chunk = static_cast<int32_t>(static_cast<size_t>(stage - out.stages.begin()) +
                                     size * out.stages.size());
  }
  Writing writing{r, size, ref, out.block(ref), r.ordinals[ref]};
  struct Rest {  // what is left of a text's block
    const RankPlace* place;
    const TextInstruction* next;
    const TextInstruction* end;
  };
  std::vector<Rest> rests;
  size_t longest = 0;
  for (const RankPlace& place : r.places) {
    const auto block = place.text->blocks.find(of_texts);
    if (block == place.text->blocks.end()) continue;
    const std::vector<TextInstruction>& all = block->second;
    rests.push_back({&place, all.data(), all.data() + all.size()});
    longest += all.size();
  }
  writing.out.reserve(longest);
  for (;;) {
    Rest* first = nullptr;
    for (Rest& rest : rests) {
      if (rest.next == rest.end) continue;
      if (first == nullptr || rest.next->order < first->next->order) first = &rest;
    }
    if (first == nullptr) return;
    writing.place = first->place;
    writing.text = first->next++;
    ++writing.ordinal;
    write_instruction(writing);
  }
}

void add_homes(const Instantiating& r, const RankPlace& place, const std::vector<TextHome>& from,
               std::vector<Home>& to) {
  for (const TextHome& home : from) {
    const size_t buffer = place.first_buffer + static_cast<size_t>(home.buffer);
    to.push_back({home.tensor, BufferId(buffer), r.boxes[0][buffer]});
  }
}

template <class Visit>
void for_each_accumulation(std::vector<Instruction>& block, const Visit& visit) {
  for (Instruction& instruction : block) {
    match(
        instruction,
        [&](Compute& compute) {
          for (Output& output : compute.outputs) {
            if (output.write == Write::kAddExceptFirst) visit(output.view.buffer, output.write);
          }
        },
        [&](Copy& copy) {
          if (copy.write == Write::kAddExceptFirst) visit(copy.to.buffer, copy.write);
        },
        [](OneOf<Issue, Send, Recv, Wait, Load, Free, FetchRows, ReleaseRows> auto&) {});
  }
}

// Changes write modes where several blocks accumulate into the same buffer: only the block that
// runs first sets the buffer in its first run, and all other blocks always add.
void set_once(Program& program) {
  std::map<BufferId, BlockRef> first;
  std::set<BlockRef> seen;
  for (const BlockRunStep& run : program.schedule) {
    const auto block = program.blocks.find(run.block);
    if (!seen.insert(run.block).second || block == program.blocks.end()) continue;
    for_each_accumulation(block->second, [&](BufferId buffer, Write& write) {
      if (first.try_emplace(buffer, run.block).first->second != run.block) write = Write::kAdd;
    });
  }
}

}  // namespace

Result<Program> instantiate(const InstantiateInput& input, int rank, bool offsets) {
  Instantiating r{input, *input.graph, {}, {}, {}, {}, {}, {}, {}};
  Program& out = r.out;
  out.rank = rank;
  out.ranks = input.plan->ranks;
  out.micro_batches = input.plan->plan.micro_batches;
  out.micro_batch_dim = input.plan->plan.micro_batch_dim;
  out.micro_batch_size = input.micro_batch_size;
  out.larger = input.larger;
  find_places(r);
  r.boxes.resize(input.sizes->size());
  std::set<BlockRef> blocks;
  for (const RankPlace& place : r.places) {
    for (const TextBuffer& buffer : place.text->buffers) add_buffer(r, place, buffer);
    for (const auto& [ref, block] : place.text->blocks) blocks.insert(ref);
  }
  for (const BlockRef ref : blocks) {
    for (size_t size = 0; size < (ref.once() ? 1 : r.boxes.size()); ++size)
      write_block(r, ref, size);
  }
  for (const RankPlace& place : r.places) {
    add_homes(r, place, place.text->homes, out.homes);
    add_homes(r, place, place.text->fetches, out.fetches);
  }
  r.handles.fill_in_waits(out, r.ordinals);
  write_schedule(out, *input.plan);
  set_once(out);
  TESSERA_TRY_VOID(hold_by_rows(out, r.graph, *input.plan, r.ordinals, r.handles.next));
  std::erase_if(out.blocks, [](const auto& block) { return block.second.empty(); });
  if (input.sizes->size() == 1) {
    plan_memory(out, offsets);
  } else {
    plan_memory_of_both(out, r.ordinals, offsets);
  }
  return std::move(r.out);
}

}  // namespace tessera
