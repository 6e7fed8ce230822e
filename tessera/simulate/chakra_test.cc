// Reads Chakra files back by a reader of the wire format that knows nothing of the writer.
#include "tessera/simulate/chakra.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <variant>

#include "tessera/program/test_programs.h"

namespace tessera::chakra_test {
namespace {

// ---- protocol buffers: field number -> values, in order
using Value = std::variant<uint64_t, std::string>;
using Fields = std::multimap<int, Value>;

struct Bytes {
  std::string_view left;
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      EXPECT_FALSE(left.empty());
      if (left.empty()) return 0;
      const auto byte = static_cast<uint8_t>(left[0]);
      left.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  }
  std::string_view take() {
    const uint64_t length = varint();
    EXPECT_LE(length, left.size());
    const std::string_view out = left.substr(0, length);
    left.remove_prefix(out.size());
    return out;
  }
};

Fields fields_of(std::string_view message) {
  Fields out;
  Bytes bytes{message};
  while (!bytes.left.empty()) {
    const uint64_t key = bytes.varint();
    const int field = static_cast<int>(key >> 3);
    if ((key & 7) == 0) {
      out.emplace(field, bytes.varint());
    } else {
      EXPECT_EQ(key & 7, 2u);
      out.emplace(field, std::string(bytes.take()));
    }
  }
  return out;
}

uint64_t number(const Fields& fields, int field) {
  const auto it = fields.find(field);
  return it == fields.end() ? 0 : std::get<uint64_t>(it->second);
}
std::string text(const Fields& fields, int field) {
  const auto it = fields.find(field);
  return it == fields.end() ? "" : std::get<std::string>(it->second);
}
std::vector<uint64_t> numbers(const Fields& fields, int field) {
  std::vector<uint64_t> out;
  const std::string packed = text(fields, field);
  for (Bytes bytes{packed}; !bytes.left.empty();) out.push_back(bytes.varint());
  return out;
}

struct Node {
  uint64_t id = 0, type = 0, duration = 0;
  std::string name;
  std::vector<uint64_t> control, data;
  std::map<std::string, Value> attributes;
  int64_t integer(const std::string& name_) const {
    return static_cast<int64_t>(std::get<uint64_t>(attributes.at(name_)));
  }
};
struct Trace {
  std::string version;
  std::vector<Node> nodes;
};

Trace read(const std::string& file) {
  Trace out;
  Bytes bytes{file};
  out.version = text(fields_of(bytes.take()), 1);
  while (!bytes.left.empty()) {
    const Fields fields = fields_of(bytes.take());
    Node node{number(fields, 1),
              number(fields, 3),
              number(fields, 7),
              text(fields, 2),
              numbers(fields, 4),
              numbers(fields, 5),
              {}};
    for (auto [it, end] = fields.equal_range(10); it != end; ++it) {
      const Fields attribute = fields_of(std::get<std::string>(it->second));
      EXPECT_EQ(attribute.size(), 2u);
      for (const auto& [field, value] : attribute) {
        if (field != 1) node.attributes[text(attribute, 1)] = value;
      }
    }
    out.nodes.push_back(std::move(node));
  }
  return out;
}

TestPrograms lowered(const std::string& plan) {
  return lower_all(trained(test_transformer()), plan);
}

// Returns the trace of a program alone, without times.
std::string chakra_of(const Program& program) {
  ProcessGroups groups;
  return to_chakra(program, {}, program.rank, groups);
}

constexpr uint64_t kLoad = 2, kCompute = 4, kSend = 5, kReceive = 6, kCollective = 7;

int64_t played(const Program& program, bool (*counts)(const Instruction&)) {
  int64_t out = 0;
  std::map<BlockRef, int64_t> runs;
  for (const BlockRunStep& step : program.schedule) {
    const int64_t run = runs[step.block]++, last = program.runs(step.block) - 1;
    for (const Instruction& instruction : program.block(step.block)) {
      const bool here = instruction.when == When::kAlways ||
                        (instruction.when == When::kFirst && run == 0) ||
                        (instruction.when == When::kLast && run == last);
      out += here && counts(instruction);
    }
  }
  return out;
}
template <class T>
bool is(const Instruction& instruction) {
  return std::holds_alternative<T>(instruction.body);
}

TEST(Chakra, a_node_for_every_instruction_that_does_something) {
  const TestPrograms t = lowered("megatron(tp=2, pp=2, dp=2, micro_batches=4)");
  ASSERT_EQ(t.programs.size(), 8u);
  for (const Program& program : t.programs) {
    const Trace trace = read(chakra_of(program));
    EXPECT_EQ(trace.version, "0.0.4");
    std::map<uint64_t, int64_t> count;
    for (const Node& node : trace.nodes) ++count[node.type];
    EXPECT_EQ(count[kCollective], played(program, is<Issue>));
    EXPECT_EQ(count[kSend], played(program, is<Send>));
    EXPECT_EQ(count[kReceive], played(program, is<Recv>));
    EXPECT_EQ(count[kLoad], played(program, is<Load>));
    EXPECT_GE(count[kCompute], played(program, is<Compute>));  // and copies inside the device
    EXPECT_GT(count[kCollective] + count[kSend] + count[kReceive], 0);
  }
}

TEST(Chakra, ids_count_up_and_needs_lie_before) {
  const TestPrograms t = lowered("megatron(tp=2, pp=2, micro_batches=4)");
  for (const Program& program : t.programs) {
    uint64_t last = 0;
    for (const Node& node : read(chakra_of(program)).nodes) {
      EXPECT_EQ(node.id, ++last);
      for (const uint64_t need : node.data) EXPECT_LT(need, node.id);
      for (const uint64_t need : node.control) EXPECT_LT(need, node.id);
    }
  }
}

TEST(Chakra, sends_and_receives_of_all_ranks_pair_up) {
  const TestPrograms t = lowered("megatron(pp=2, dp=2, micro_batches=4)");
  std::map<std::array<int64_t, 4>, int> open;  // source, destination, tag, bytes
  int messages = 0;
  for (const Program& program : t.programs) {
    for (const Node& node : read(chakra_of(program)).nodes) {
      if (node.type != kSend && node.type != kReceive) continue;
      ++messages;
      open[{node.integer("comm_src"), node.integer("comm_dst"), node.integer("comm_tag"),
            node.integer("comm_size")}] += node.type == kSend ? 1 : -1;
      EXPECT_EQ(node.integer(node.type == kSend ? "comm_src" : "comm_dst"), program.rank);
    }
  }
  EXPECT_GT(messages, 0);
  for (const auto& [message, balance] : open) EXPECT_EQ(balance, 0) << message[2];
  EXPECT_EQ(static_cast<int>(open.size()) * 2, messages);  // tags tell micro-batches apart
}

TEST(Chakra, what_waits_needs_what_it_waited_for) {
  const TestPrograms t = lowered("tensor_parallel(2)");
  const Trace trace = read(chakra_of(t.programs[0]));
  std::map<uint64_t, bool> needed;
  for (const Node& node : trace.nodes) {
    for (const uint64_t need : node.data) needed[need] = true;
  }
  int collectives = 0;
  for (const Node& node : trace.nodes) {
    if (node.type != kCollective) continue;
    ++collectives;
    EXPECT_FALSE(node.data.empty());  // what it sends was computed before
    EXPECT_TRUE(needed[node.id] || node.id == trace.nodes.back().id) << node.id;
    EXPECT_EQ(std::get<std::string>(node.attributes.at("pg_name")), "1");
    EXPECT_EQ(node.integer("comm_type"), 0);
    EXPECT_GT(node.integer("comm_size"), 0);
    EXPECT_EQ(node.integer("is_cpu_op"), 0);
  }
  EXPECT_GT(collectives, 0);
}

TEST(Chakra, durations_come_from_the_simulation) {
  const TestPrograms t = lowered("megatron(pp=2, micro_batches=4)");
  const Program& program = t.programs[0];
  const BlockRef forward(BlockKind::kForward);
  int32_t index = -1;
  for (const Instruction& instruction : program.block(forward)) {
    ++index;
    if (is<Compute>(instruction)) break;
  }
  Simulation s;
  for (const auto& [micro_batch, seconds] : {std::pair{0, 5e-6}, std::pair{1, 7e-6}}) {
    TraceEvent event;
    event.rank = 6;  // stands for rank 0
    event.block = forward;
    event.instruction = index;
    event.micro_batch = micro_batch;
    event.start_s = 1e-3;
    event.end_s = 1e-3 + seconds;
    s.events.push_back(event);
  }
  ProcessGroups groups;
  std::map<std::string, uint64_t> durations;
  for (const Node& node : read(to_chakra(program, s, 6, groups)).nodes) {
    durations[std::get<std::string>(node.attributes.at("instruction"))] = node.duration;
  }
  const auto id = [&](int micro_batch) {
    return "forward:" + std::to_string(micro_batch) + ":" + std::to_string(index);
  };
  EXPECT_EQ(durations.at(id(0)), 5u);
  EXPECT_EQ(durations.at(id(1)), 7u);
  EXPECT_EQ(durations.at(id(3)), 7u);  // counted, not played
}

TEST(Chakra, operations_are_written_if_somebody_counts_them) {
  const TestPrograms t = lowered("tensor_parallel(2)");
  ProcessGroups groups;
  ChakraOptions options;
  options.flops = [](const Compute& compute) { return compute.kind == "einsum" ? 64. : 1.; };
  for (const Node& node : read(to_chakra(t.programs[0], {}, 0, groups, options)).nodes) {
    if (node.type != kCompute || node.name == "copy") continue;
    EXPECT_EQ(node.integer("num_ops"), node.name == "einsum" ? 64 : 1);
  }
}

TEST(ProcessGroups, have_a_number_for_each_set_of_members) {
  ProcessGroups groups;
  EXPECT_EQ(groups.to_json(), "{}\n");
  EXPECT_EQ(groups.number({PlaceId(0), {}, {0, 4, 8}, 0}), 1);
  EXPECT_EQ(groups.number({PlaceId(0), {}, {0, 1}, 0}), 2);
  EXPECT_EQ(groups.number({PlaceId(0), {}, {0, 4, 8}, 2}), 1);  // another member asks
  EXPECT_EQ(groups.to_json(), "{\n\"1\": [0, 4, 8],\n\"2\": [0, 1]\n}\n");
}

}  // namespace
}  // namespace tessera::chakra_test
