// An execution style says how a framework executes a program: how long its host needs for an op,
// which element-wise ops it fuses, what it overlaps. It is a named set of cost options; with them,
// a program of ours is priced as if that framework ran it. Options that change *what* is executed
// (recompute, sharded states, buckets, precision) belong to the plan; `predict` sets both and names
// them. The presets are data, each value with its source: tessera/cost/data/styles.toml
// (style_data.h), printed in docs/reference/styles.md.
//
//   TESSERA_TRY(const Style style, parse_style("fsdp,host_forward_s=20us"));
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/result.h"

namespace tessera {

struct Style {
  std::string name = "tessera";
  // Host time for one op of the block, before scaling by the node's host_slowness; 0 for a replayed
  // graph.
  double host_forward_s = 0, host_backward_s = 0, host_update_s = 0;
  double host_collective_s = 0;  // for the call of a collective or a message
  // The device idles this long after every kernel and before every collective (streams wait for one
  // another, members arrive one after the other); once a micro-batch the host waits for the loss.
  double kernel_gap_s = 0, collective_gap_s = 0, loss_overhead_s = 0;
  // Host time of a collective for every member in a node beyond four.
  double host_crowd_s = 0;
  // If true, products whose sizes are no multiples of 64 run as if padded to multiples. If false,
  // they run at the shares of kAlignments.
  bool pads_products = true;
  // Passes over memory: 1 = every op of the graph is a kernel of its own that reads its inputs and
  // writes its outputs; below 1: neighbours are fused into one kernel.
  double elementwise_passes = 1;
  bool fused_attention =
      true;                  // false: scores are written out, softmax, mask and dropout are passes
  bool fused_update = true;  // one kernel for many parameters
  // Products of experts: one call and one kernel for each expert of the device, instead of one for
  // all.
  bool kernel_an_expert = false;
  // Arithmetic of matrix products: "" as their dtype says; "tf32" instead of fp32; "fp8", "fp4"
  // instead of 16 bits, in the linear layers of repeated blocks, where the device has it.
  std::string matmul_arithmetic;
  // Casts of products in fp8 and fp4: bytes moved for each element of the activation operand. 3: a
  // kernel that reads 16 bits and writes 8; less where norms and activations write 8 bits and
  // products of one operand share its cast.
  double cast_bytes = 3;
  // Unfused attention, forward: arrays of all scores that are read or written between the two
  // products (scale, mask, softmax, dropout); backward 1.5 times as many.
  double attention_passes = 5;
  // Loss: arrays of float32 logits read or written, forward and again backward; 0: one fused kernel
  // each, which moves its operands.
  double loss_passes = 0;
  // Memory that unfused ops of 16-bit runs take beside the graph's tensors. Attention keeps
  // `attention_saved_bytes` a score for the backward pass (softmax 2, mask 1 and output 2 of
  // dropout). The loss keeps `loss_saved` float32 arrays of all logits and needs `loss_workspace`
  // more while it runs.
  double attention_saved_bytes = 5, loss_saved = 0, loss_workspace = 0;
  // Gradient of a look-up: passes over its operands (rows are sorted and added one by one).
  double lookup_gradient_passes = 1;
  double norm_passes = 1;  // passes over the operands of norms and softmax; 1: fused
  bool copy_views = true;  // false: dims renamed, joined or cut cost no kernel
  // Factors on the device's efficiencies (1: as the device's curve says).
  double matmul_efficiency = 1, attention_efficiency = 1, memory_efficiency = 1;
  // Factors on the curves' rates of collectives and messages: inside a node, between nodes.
  double inner_efficiency = 1, network_efficiency = 1;
  // Communication that the framework runs beside computation; if false, the host waits for it.
  bool overlap_gradients = true, overlap_parameters = true, overlap_messages = true;
  // Shares of a collective of activations, and of the exchange of tokens with their experts, that
  // run in pieces beside the kernels that produce or consume the data; the host waits for the rest.
  double activation_overlap = 0, routing_overlap = 0;
  // If true, a token that goes to several experts of one other node crosses the network once and is
  // copied to them inside that node.
  bool tokens_once_a_node = false;
  double compute_slowdown = 1.15;  // of compute while communication inside the node runs beside it
  double network_slowdown = 1.03;  // of compute while a NIC is busy
  double collective_slowdown = 1.10;
  // If true, gradients of parameters lie in buffers that are allocated once; reduced gradients stay
  // in them.
  bool gradient_buffers = false;
  enum class Allocator : uint8_t { kPlanned, kCaching, kExpandable };
  Allocator allocator = Allocator::kPlanned;
  // Selects a profile's measured collectives and messages: between threads of a process, between
  // processes of MPI, of NCCL; any: the first of these that was measured.
  enum class Transport : uint8_t { kAny, kThreads, kMpi, kNccl };
  Transport transport = Transport::kAny;
  // Costs once a step: data loading, logging, reading the loss (seconds), and the relative noise of
  // a rank's step.
  double step_overhead_s = 0;
  double jitter = 0;
  friend bool operator==(const Style&, const Style&) = default;
};

// Reads a style: a preset's name ("tessera", "megatron", "fsdp", ...), or "name,key=value,..." to
// change some options; keys are the fields' names, times have a unit ("host_forward_s=20us").
// Errors: unknown preset or key (with the nearest), an invalid value.
Result<Style> parse_style(std::string_view text);
// Returns the text of the style, with every option that differs from its preset; parse_style reads
// it back to an equal value.
std::string to_string(const Style& style);
std::vector<std::string> style_names();
std::vector<std::string> style_keys();

}  // namespace tessera
