#include "tessera/runtime/step/flights.h"

#include <utility>

#include "tessera/base/check.h"

namespace tessera {

void Flights::add(int handle, BlockRef block, When when, std::string name,
                  comm::Communicator* communicator, device::Stream* stream) {
  Flight& flight = flights_[handle];
  flight.each_run = !block.once() && when == When::kAlways;
  flight.started = std::vector<Started>(
      flight.each_run ? static_cast<size_t>(program_.micro_batches) : size_t{1});
  flight.communicator = communicator;
  flight.stream = stream;
  flight.name = std::move(name);
}

void Flights::start(const StepRun& run, int handle, Started started) {
  Flight& flight = flights_.at(handle);
  Started& slot = flight.started[flight.each_run ? static_cast<size_t>(run.micro_batch) : 0];
  TESSERA_CHECK(slot.handle == comm::kNoHandle,
                "rank {}: handle #{} is issued again before its wait", program_.rank, handle);
  slot = std::move(started);
}

void Flights::wait_for(Flight& flight, size_t slot) {
  Started started = std::exchange(flight.started[slot], Started());
  if (started.handle != comm::kNoHandle && flight.communicator == nullptr) {
    if (const Status status = copier_.wait(started.handle); !status)
      throw comm::CommFault{status.error().message, status.error().code};
  } else if (started.handle != comm::kNoHandle) {
    flight.communicator->wait(started.handle);
  }
  if (started.coded) started.coded->finish();
  if (started.rows != nullptr) started.rows->finish();
  if (started.copies) started.copies->give_back();
}

void Flights::wait_for_all(Flight& flight) {
  for (size_t slot = 0; slot < flight.started.size(); ++slot) wait_for(flight, slot);
}

void Flights::wait_for_all() {
  for (auto& [handle, flight] : flights_) {
    if (flight.stream == nullptr) {
      wait_for_all(flight);
    } else {
      flight.stream->launch([this, &flight = flight] { wait_for_all(flight); });
    }
  }
}

void Flights::wait(const StepRun& run, const Wait& wait,
                   const ByBlock<std::vector<int64_t>>& micro_batches) {
  Flight& flight = flights_.at(wait.handle);
  if (run.block.once() || !flight.each_run) return wait_for_all(flight);
  if (wait.lag > run.index) return;
  const int64_t micro_batch =
      wait.lag == 0
          ? run.micro_batch
          : micro_batches.at(program_.family(run.block))[static_cast<size_t>(run.index - wait.lag)];
  wait_for(flight, static_cast<size_t>(micro_batch));
}

}  // namespace tessera
