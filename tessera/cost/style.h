// An execution style says how a framework executes a program: how long its host needs for an op,
// which element-wise ops it fuses, what it overlaps. A `Style` is a set of cost options with a
// name. With it, a program is priced as if that framework ran it. Options that change *what* is
// executed (recompute, sharded states, buckets, precision) belong to the plan instead. The presets
// are in the data file tessera/cost/data/styles.toml (style_data.h), each value with its source.
// docs/reference/styles.md prints them.
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
  // Host time for one op of a forward, backward or update block, before it is multiplied by the
  // node's host_slowness; 0 if the framework replays a recorded graph.
  double host_forward_s = 0, host_backward_s = 0, host_update_s = 0;
  double host_collective_s = 0;  // host time for the call of a collective or a message
  // Says what the host issues (launches.h). kOps: an op's kernels, fused by libraries. kLaunches: the
  // kernels of this project's own runtime on a GPU, each with the device's issue time, and so each
  // call of a collective, message or copy. kGraph: once a step the recorded graph of all of these.
  // Devices whose kernels run in the issuing thread have kOps in any case.
  enum class Host : uint8_t { kOps, kLaunches, kGraph };
  Host host = Host::kOps;
  // Idle times of the device: after every kernel, before every collective (because streams wait for
  // one another and members arrive one after the other), and once a micro-batch, when the host
  // waits for the loss.
  double kernel_gap_s = 0, collective_gap_s = 0, loss_overhead_s = 0;
  // Host time that a collective takes for each member of a node beyond the fourth.
  double host_crowd_s = 0;
  // If true, products whose sizes are no multiples of 64 run as if padded to multiples. If false,
  // they run at the shares of kAlignments.
  bool pads_products = true;
  // Factor on the memory traffic of element-wise ops. If 1, every op is a kernel of its own that
  // reads its inputs and writes its outputs; below 1, neighbouring ops are fused into one kernel.
  double elementwise_passes = 1;
  bool fused_attention =
      true;  // false: scores are in memory, and softmax, mask and dropout pass over them
  bool fused_update = true;  // one kernel for many parameters
  // If true, the products of experts are one call and one kernel for each expert on the device,
  // instead of one for all experts.
  bool kernel_an_expert = false;
  // Arithmetic of matrix products. "": that of their dtype. "tf32": tf32 in place of fp32. "fp8",
  // "fp4": this arithmetic in place of 16 bits, in the linear layers of repeated blocks, if the
  // device has it.
  std::string matmul_arithmetic;
  // Bytes that the casts for products in fp8 and fp4 move for each element of the activation
  // operand. It is 3 for a kernel that reads 16 bits and writes 8 bits. It is less if norms
  // and activation functions write 8 bits directly, or if products with the same operand share
  // its cast.
  double cast_bytes = 3;
  // Unfused attention: the number of arrays of all scores that the forward pass reads or writes
  // between the two products (for scale, mask, softmax, dropout). The backward pass has 1.5 times
  // as many.
  double attention_passes = 5;
  // Loss: the number of float32 arrays of all logits that the forward pass reads or writes; the
  // backward pass has as many. 0: each pass is one fused kernel that moves only its operands.
  double loss_passes = 0;
  // Memory that unfused ops of 16-bit runs take in addition to the graph's tensors. Attention keeps
  // `attention_saved_bytes` for each score until the backward pass: 2 for the softmax, 1 for the
  // mask of dropout, 2 for its output. The loss keeps `loss_saved` float32 arrays of all logits,
  // and needs `loss_workspace` more such arrays while it runs.
  double attention_saved_bytes = 5, loss_saved = 0, loss_workspace = 0;
  // Pieces of a micro-batch for which logits, loss and their gradients are computed one after the
  // other. Only one piece of the logits is in memory. 1: all at once.
  double loss_chunks = 1;
  // If true, the products of repeated blocks add their weight gradients to buffers of gradients and
  // return placeholders, of which one for each layer of a block and shape stays allocated.
  bool placeholder_gradients = false;
  // Device memory, beyond Device::context_bytes, that the code and buffers of the framework's own
  // libraries take.
  double library_bytes = 0;
  // Factor on the memory traffic of the gradient of a look-up, whose rows are sorted and added one
  // by one.
  double lookup_gradient_passes = 1;
  double norm_passes = 1;  // factor on the memory traffic of norms and softmax; 1: fused
  bool copy_views = true;  // false: an op that only renames, joins or cuts dims costs no kernel
  // Factors on the rates of matrix products, of attention and of memory; 1: the rates of the
  // cost model.
  double matmul_efficiency = 1, attention_efficiency = 1, memory_efficiency = 1;
  // Factors on the rates of collectives and messages inside a node and between nodes; 1: the rates
  // of the cost model.
  double inner_efficiency = 1, network_efficiency = 1;
  // Whether the framework runs the communication of gradients, of parameters and of messages
  // between stages at the same time as computation. If false, the host waits for it.
  bool overlap_gradients = true, overlap_parameters = true, overlap_messages = true;
  // Shares of the collectives of activations, and of the exchange of tokens with their experts,
  // that overlap with the kernels that produce or consume the data, because both run in pieces. The
  // host waits for the rest.
  double activation_overlap = 0, routing_overlap = 0;
  // If true, a token that goes to several experts of one other node crosses the network once and is
  // copied to them inside that node.
  bool tokens_once_a_node = false;
  // Factor on compute time while communication inside the node runs.
  double compute_slowdown = 1.15;
  double network_slowdown = 1.03;     // factor on compute time while a NIC is busy
  double collective_slowdown = 1.10;  // factor on transfers in a node while compute runs
  // If true, the gradients of parameters are in buffers that are allocated once and keep the
  // reduced gradients.
  bool gradient_buffers = false;
  enum class Allocator : uint8_t { kPlanned, kCaching, kExpandable };
  Allocator allocator = Allocator::kPlanned;
  // Selects which measured collectives and messages of a profile are used: those between threads of
  // a process, those of MPI or those of NCCL. kAny: the first that was measured, in the order
  // threads, NCCL, MPI.
  enum class Transport : uint8_t { kAny, kThreads, kMpi, kNccl };
  Transport transport = Transport::kAny;
  // `step_overhead_s` is the time of data loading, logging and reading the loss, once a training
  // step. `jitter` is the relative noise of the step time of a rank.
  double step_overhead_s = 0;
  double jitter = 0;
  friend bool operator==(const Style&, const Style&) = default;
};

// Reads a style: the name of a preset ("tessera", "megatron-2022", "fsdp", ...), or "name,key=value,..."
// to change some of its options. The keys are the names of the members; times have a unit
// ("host_forward_s=20us"). Errors: an unknown preset or key (the error suggests the nearest one);
// an invalid value.
Result<Style> parse_style(std::string_view text);
// Returns the text of the style, which is its preset and all options that differ from it.
// parse_style reads an equal style from this text.
std::string to_string(const Style& style);
std::vector<std::string> style_names();
std::vector<std::string> style_keys();

}  // namespace tessera
