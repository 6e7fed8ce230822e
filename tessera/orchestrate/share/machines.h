// The machines that jobs share, and which GPUs of them are taken (the state of the cluster).
//
//   TESSERA_TRY(const Machines machines, parse_machines("16x4"));           // nodes x GPUs
//   TESSERA_TRY(const Machines mixed, parse_machines("k80:4x4,v100:8x4"));  // several types
//   Occupancy taken(machines);
//   taken.give(job, allocation);   // a broken invariant if a GPU would be given twice
#pragma once

#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/orchestrate/share/job.h"

namespace tessera::share {

struct Machines {
  struct Node {
    int gpus = 0, type = 0;
    bool operator==(const Node&) const = default;
  };
  std::vector<Node> nodes;
  std::vector<std::string> types;  // at least one; "gpu" if the text named none

  int gpus() const;
  int gpus(int type) const;
  int largest_node() const;
  Shape shape(const Allocation& allocation) const;
  // Returns the shape of so many GPUs on as few nodes of the type as possible; an empty one if there
  // are not so many.
  Shape packed(int gpus, int type = 0) const;
};

// Reads "16x4", or types with their nodes. Errors: another form, no nodes or GPUs, more than 100,000
// nodes, a type twice.
Result<Machines> parse_machines(const std::string& text);

// Which GPUs of each node are free, and which job has which.
class Occupancy {
 public:
  explicit Occupancy(const Machines& machines);
  const std::vector<int>& free() const { return free_; }  // by node
  int free_gpus() const { return free_gpus_; }
  int nodes_with_free() const;
  const Allocation& of(int job) const;
  // Gives the job these GPUs instead of those that it has. All must be free.
  void give(int job, const Allocation& allocation);
  void take_back(int job);
  void close(int node);           // its GPUs, which must all be free, are no longer there
  void open(int node, int gpus);  // GPUs of a closed node are there again

 private:
  std::vector<int> free_;
  std::vector<Allocation> held_;  // by job
  int free_gpus_ = 0;
};

}  // namespace tessera::share
