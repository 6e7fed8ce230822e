// The operations of a rank that are under way: collectives, messages, and copies between tiers, by
// the handle of the program. An operation is started in one instruction and waited for in another,
// perhaps in a later run of the block. Private to tessera/runtime.
//
//   Flights flights(program, copier);
//   flights.add(handle, block, when, "all_reduce", communicator, messaging);  // before the first step
//   flights.start(run, handle, {communicator.issue(...)});
//   flights.wait(run, wait, micro_batches);
//
// Errors: an operation that failed throws comm::CommFault when it is waited for.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tessera/comm/coded.h"
#include "tessera/comm/communicator.h"
#include "tessera/program/program.h"
#include "tessera/runtime/arrays/copier.h"
#include "tessera/runtime/cached_rows/row_exchange.h"
#include "tessera/runtime/device/device.h"
#include "tessera/runtime/device/host_copies.h"
#include "tessera/runtime/step/prepared_step.h"

namespace tessera {

// An operation under way, and what is to be done after the wait for it.
struct Started {
  comm::Handle handle = comm::kNoHandle;          // of the communicator, or a ticket of the copier
  std::unique_ptr<comm::CodedCall> coded = {};    // a message to be decoded
  std::optional<device::HostCopies> copies = {};  // copies on the host, to be given back
  RowExchange* rows = nullptr;                    // arriving rows to be written to their places
};

class Flights {
 public:
  // Keeps references to both arguments.
  Flights(const Program& program, Copier& copier) : program_(program), copier_(copier) {}

  // Adds the handle of an instruction. `communicator` has its operations; null: the copier has them.
  // `stream`: of a device, which starts and awaits them; null without a device.
  void add(int handle, BlockRef block, When when, std::string name,
           comm::Communicator* communicator, device::Stream* stream);
  void start(const StepRun& run, int handle, Started started);
  // Waits for what the wait names. `micro_batches`: as PreparedStep::micro_batches.
  void wait(const StepRun& run, const Wait& wait,
            const ByBlock<std::vector<int64_t>>& micro_batches);
  // Waits for everything; on a device, lets each stream wait for its own operations.
  void wait_for_all();

  device::Stream* stream_of(int handle) const { return flights_.at(handle).stream; }
  const std::string& name_of(int handle) const { return flights_.at(handle).name; }

 private:
  // The operations under a handle: one for each micro-batch, or only one if the instruction runs
  // once a step.
  struct Flight {
    std::vector<Started> started;
    bool each_run = true;  // whether it is issued in every run of a block of a micro-batch
    comm::Communicator* communicator = nullptr;
    device::Stream* stream = nullptr;
    std::string name;
  };
  void wait_for(Flight& flight, size_t slot);
  void wait_for_all(Flight& flight);

  const Program& program_;
  Copier& copier_;
  std::unordered_map<int, Flight> flights_;
};

}  // namespace tessera
