#include "tessera/simulate/chakra.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "tessera/base/text.h"
#include "tessera/cost/op_cost.h"
#include "tessera/program/communication.h"
#include "tessera/program/instructions.h"
#include "tessera/simulate/chrome_trace.h"

namespace tessera {
namespace {

// ---- wire format of protocol buffers
class Message {
 public:
  void number(int field, uint64_t value) {
    varint(static_cast<uint64_t>(field) << 3);
    varint(value);
  }
  void integer(int field, int64_t value) { number(field, static_cast<uint64_t>(value)); }
  void text(int field, std::string_view value) {
    varint((static_cast<uint64_t>(field) << 3) | 2);
    varint(value.size());
    bytes_ += value;
  }
  void numbers(int field, const std::set<uint64_t>& values) {  // packed
    if (values.empty()) return;
    Message packed;
    for (const uint64_t value : values) packed.varint(value);
    text(field, packed.bytes_);
  }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7f) | 0x80);
    bytes_ += static_cast<char>(value);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Field numbers of et_def.proto.
enum class ChakraNode : uint8_t {
  kMemLoad = 2,
  kMemStore = 3,
  kCompute = 4,
  kSend = 5,
  kReceive = 6,
  kCollective = 7
};
namespace attribute {
constexpr int kName = 1, kInt32 = 7, kInt64 = 9, kUint64 = 13, kBool = 27, kString = 29;
}
namespace node {
constexpr int kId = 1, kName = 2, kType = 3, kControl = 4, kData = 5, kStart = 6, kDuration = 7,
              kAttribute = 10;
}

class NodeAttributes {
 public:
  void integer(std::string_view name, int field, int64_t value) {
    Message message = named(name);
    message.integer(field, value);
    all_.push_back(message.bytes());
  }
  void text(std::string_view name, std::string_view value) {
    Message message = named(name);
    message.text(attribute::kString, value);
    all_.push_back(message.bytes());
  }
  const std::vector<std::string>& all() const { return all_; }

 private:
  static Message named(std::string_view name) {
    Message message;
    message.text(attribute::kName, name);
    return message;
  }
  std::vector<std::string> all_;
};

// Returns the format's CollectiveCommType of the kind; that of all-to-all for kinds that the format
// does not have.
int64_t comm_type(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce: return 0;
    case CollectiveKind::kReduce: return 1;
    case CollectiveKind::kAllGather: return 2;
    case CollectiveKind::kBroadcast: return 5;
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kPermute:
    case CollectiveKind::kExchange: return 6;
    case CollectiveKind::kReduceScatter: return 7;
  }
  return 6;
}

struct Span {
  double start_s = 0, seconds = 0;
};

class Exporter {
 public:
  Exporter(const Program& program, const Simulation& simulation, int32_t representative,
           ProcessGroups& groups, const ChakraOptions& options)
      : program_(program), process_groups_(groups), options_(options) {
    for (const TraceEvent& event : simulation.events) {
      if (event.rank != representative || event.lane == Lane::kHost) continue;
      const auto [it, fresh] = spans_.try_emplace(
          {event.block, event.instruction, event.micro_batch}, Span{event.start_s, 0});
      it->second.start_s = std::min(it->second.start_s, event.start_s);
      it->second.seconds += event.end_s - event.start_s;
    }
  }

  std::string write() {
    Message metadata;
    metadata.text(1, "0.0.4");
    append(metadata);
    std::map<BlockRef, int64_t> runs;
    std::map<BlockRef, const BlockRunStep*> ends;
    for (const BlockRunStep& step : program_.schedule) ends[program_.family(step.block)] = &step;
    for (const BlockRunStep& step : program_.schedule) {
      const BlockRef family = program_.family(step.block);
      const int64_t run = runs[family]++;
      const bool last = &step == ends.at(family);
      const auto& instructions = program_.block(step.block);
      for (size_t i = 0; i < instructions.size(); ++i) {
        if (instructions[i].when == When::kFirst && run > 0) continue;
        if (instructions[i].when == When::kLast && !last) continue;
        at_ = {step.block, static_cast<int32_t>(i), step.micro_batch};
        run_ = run;
        std::visit([&](const auto& body) { one(body); }, instructions[i].body);
      }
    }
    return std::move(file_);
  }

 private:
  using At = std::tuple<BlockRef, int32_t, int64_t>;  // block, instruction, micro-batch

  void append(const Message& message) {
    Message length;
    length.varint(message.bytes().size());
    file_ += length.bytes();
    file_ += message.bytes();
  }

  // Returns the times of this run of the instruction; if it has no event, those of its run in the
  // nearest earlier micro-batch.
  Span span() const {
    auto it = spans_.upper_bound(at_);
    if (it == spans_.begin()) return {};
    --it;
    const bool same =
        std::get<0>(it->first) == std::get<0>(at_) && std::get<1>(it->first) == std::get<1>(at_);
    return same ? it->second : Span{};
  }

  std::string id_text() const {
    TraceEvent event;
    std::tie(event.block, event.instruction, event.micro_batch) = at_;
    return instruction_id(event);
  }

  // Writes a node that depends on the nodes of frontier_ and `control`: those that were computed or
  // waited for before. Returns its id.
  uint64_t add(ChakraNode type, std::string_view name, const NodeAttributes& attributes,
               const std::set<uint64_t>& control = {}) {
    const Span span = this->span();
    Message out;
    out.number(node::kId, ++nodes_);
    out.text(node::kName, name);
    out.number(node::kType, static_cast<uint64_t>(type));
    out.numbers(node::kControl, control);
    out.numbers(node::kData, frontier_);
    out.integer(node::kStart, std::llround(span.start_s * 1e6));
    out.integer(node::kDuration, std::llround(span.seconds * 1e6));
    for (const std::string& attribute : attributes.all()) out.text(node::kAttribute, attribute);
    append(out);
    return nodes_;
  }

  NodeAttributes common() const {
    NodeAttributes out;
    out.integer("is_cpu_op", attribute::kBool, 0);
    out.text("instruction", id_text());
    out.integer("duration_nanos", attribute::kInt64, std::llround(span().seconds * 1e9));
    return out;
  }

  int64_t bytes(const View& view) const {
    return view.box.volume() * dtype_bytes(program_.buffer(view.buffer).dtype);
  }

  // Makes later nodes depend only on this node. That is enough, because this node depends on all
  // nodes of the old frontier_.
  void in_line(uint64_t id) { frontier_ = {id}; }
  void beside(int handle, uint64_t id) {
    by_run_[{handle, program_.family(std::get<0>(at_)), run_}] = id;
    by_micro_batch_[{handle, std::get<2>(at_)}] = id;
    latest_[handle] = id;
  }
  std::set<uint64_t> after(std::map<int64_t, uint64_t>& streams, int64_t stream) const {
    const auto it = streams.find(stream);
    return it == streams.end() ? std::set<uint64_t>{} : std::set<uint64_t>{it->second};
  }

  void one(const Compute& compute) {
    NodeAttributes attributes = common();
    if (options_.flops) {
      attributes.integer("num_ops", attribute::kInt64, std::llround(options_.flops(compute)));
    }
    int64_t moved = 0;
    for (const View& view : compute.inputs) moved += bytes(view);
    for (const Output& output : compute.outputs) moved += bytes(output.view);
    attributes.integer("tensor_size", attribute::kUint64, moved);
    in_line(add(ChakraNode::kCompute, compute.kind, attributes));
  }
  void one(const Issue& issue) {
    const Group& group = program_.groups[static_cast<size_t>(issue.group)];
    NodeAttributes attributes = common();
    int64_t size = 0;
    for (const Transfer& transfer : issue.transfers) {
      if (transfer.in) size += bytes(*transfer.in);
    }
    if (issue.named) size = sent_traffic(issue, static_cast<size_t>(group.index)).bytes;
    attributes.integer("comm_type", attribute::kInt64, comm_type(issue.kind));
    attributes.integer("comm_size", attribute::kInt64, size);
    attributes.text("pg_name", fmt::format("{}", process_groups_.number(group)));
    const uint64_t id = add(ChakraNode::kCollective, collective_name(issue.kind), attributes,
                            after(collectives_, issue.group));
    collectives_[issue.group] = id;
    beside(issue.handle, id);
  }
  template <class M>
  uint64_t message(const M& message, ChakraNode type, std::map<int64_t, uint64_t>& streams) {
    const bool sends = type == ChakraNode::kSend;
    NodeAttributes attributes = common();
    const int64_t micro_batch = std::get<2>(at_);
    attributes.integer("comm_src", attribute::kInt32, sends ? program_.rank : message.peer);
    attributes.integer("comm_dst", attribute::kInt32, sends ? message.peer : program_.rank);
    attributes.integer("comm_tag", attribute::kInt32,
                       message.tag * program_.micro_batches + micro_batch);
    attributes.integer("comm_size", attribute::kInt64, bytes(message.view));
    const uint64_t id =
        add(type, sends ? "send" : "receive", attributes, after(streams, message.peer));
    streams[message.peer] = id;
    return id;
  }
  void one(const Send& send) { beside(send.handle, message(send, ChakraNode::kSend, sends_)); }
  void one(const Recv& receive) {
    beside(receive.handle, message(receive, ChakraNode::kReceive, receives_));
  }
  void one(const Wait& wait) {
    if (wait.lag > 0) {
      const auto it =
          by_run_.find({wait.handle, program_.family(std::get<0>(at_)), run_ - wait.lag});
      if (it != by_run_.end()) frontier_.insert(it->second);
      return;
    }
    const auto it = by_micro_batch_.find({wait.handle, std::get<2>(at_)});
    const auto any = latest_.find(wait.handle);
    if (it != by_micro_batch_.end()) {
      frontier_.insert(it->second);
    } else if (any != latest_.end()) {
      frontier_.insert(any->second);
    }
  }
  void one(const Copy& copy) {
    const Tier from = program_.buffer(copy.from.buffer).tier,
               to = program_.buffer(copy.to.buffer).tier;
    const ChakraNode type = from == to            ? ChakraNode::kCompute
                            : to == Tier::kDevice ? ChakraNode::kMemLoad
                                                  : ChakraNode::kMemStore;
    NodeAttributes attributes = common();
    attributes.integer("tensor_size", attribute::kUint64, bytes(copy.to));
    const bool aside = copy.handle >= 0;
    const uint64_t id =
        add(type, "copy", attributes, aside ? after(copies_, 0) : std::set<uint64_t>{});
    if (!aside) return in_line(id);
    copies_[0] = id;
    beside(copy.handle, id);
  }
  void one(const Load& load) {
    NodeAttributes attributes = common();
    attributes.integer("tensor_size", attribute::kUint64, bytes(load.to));
    in_line(add(ChakraNode::kMemLoad, "load", attributes));
  }
  void one(const FetchRows& fetch) {
    const RowCache& cache = program_.caches[static_cast<size_t>(fetch.cache)];
    NodeAttributes attributes = common();
    attributes.integer("tensor_size", attribute::kUint64,
                       (fetch.expected_in + fetch.expected_out) * row_bytes(program_, cache));
    copies_[0] = add(ChakraNode::kMemLoad, "fetch rows", attributes, after(copies_, 0));
    beside(fetch.handle, copies_[0]);
  }
  void one(const OneOf<ReleaseRows, Free> auto&) {}

  const Program& program_;
  ProcessGroups& process_groups_;
  const ChakraOptions& options_;
  std::map<At, Span> spans_;
  std::string file_;
  uint64_t nodes_ = 0;
  At at_;
  int64_t run_ = 0;  // of the block's family
  std::set<uint64_t> frontier_;
  // By stream, which is the group of a collective, the peer of a message, or 0: the last node.
  std::map<int64_t, uint64_t> collectives_, sends_, receives_, copies_;
  std::map<std::tuple<int, BlockRef, int64_t>, uint64_t> by_run_;
  std::map<std::pair<int, int64_t>, uint64_t> by_micro_batch_;
  std::map<int, uint64_t> latest_;
};

}  // namespace

int64_t ProcessGroups::number(const Group& group) {
  const auto next = static_cast<int64_t>(numbers_.size()) + 1;
  return numbers_.try_emplace(group.members, next).first->second;
}

std::string ProcessGroups::to_json() const {
  std::map<int64_t, std::string> members;
  for (const auto& [ranks, number] : numbers_)
    members[number] = fmt::format("[{}]", fmt::join(ranks, ", "));
  std::vector<std::string> lines;
  for (const auto& [number, ranks] : members)
    lines.push_back(fmt::format("\"{}\": {}", number, ranks));
  return lines.empty() ? "{}\n" : "{\n" + join(lines, ",\n") + "\n}\n";
}

std::string to_chakra(const Program& program, const Simulation& simulation, int32_t representative,
                      ProcessGroups& groups, const ChakraOptions& options) {
  return Exporter(program, simulation, representative, groups, options).write();
}

Result<int64_t> write_chakra(const Lowering& lowering, const Simulation& simulation,
                             const std::string& prefix) {
  ProcessGroups groups;
  int64_t written = 0;
  for (size_t rank = 0; rank < simulation.played_by.size(); ++rank) {
    const int32_t representative = simulation.played_by[rank];
    if (representative < 0) continue;
    TESSERA_TRY(const Program program, lowering.lower(static_cast<int>(rank)));
    ChakraOptions options;
    options.flops = [&](const Compute& compute) {
      return work_of(lowering.graph(), program, compute).flops;
    };
    TESSERA_TRY_VOID(write_file(fmt::format("{}.{}.et", prefix, rank),
                                to_chakra(program, simulation, representative, groups, options)));
    ++written;
  }
  TESSERA_TRY_VOID(write_file(prefix + ".groups.json", groups.to_json()));
  return written;
}

}  // namespace tessera
