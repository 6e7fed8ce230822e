// The Slurm back end: a job of the controller is a set of Slurm jobs, one for each node that it has GPUs
// on, which this file calls its worker jobs. Slurm is never asked to resize one.
//
// A start submits the worker jobs held, says on which node each runs, and releases them together. The
// first one trains. With one node its ranks are threads of one process; with several, mpirun starts them
// on all nodes, which it reaches by srun inside the other worker jobs. Those do nothing else; they begin
// before the first one, and end with it. A move is scancel and a new start.
//
// Worker jobs outlive the controller. Each has a mark in its comment: the identity of the journal, the
// job, which part of it this is, its node and GPUs. start() looks for marks first: it goes on with a
// complete set on the nodes that it wants, and cancels any other. Two more fences keep copies apart where
// Slurm is slow or wrong (a node that does not answer is taken to be lost while its processes go on): a
// process trains only while it has the lock of its job, a file beside the log; and look() cancels worker
// jobs with the mark of this journal that nobody has started.
//
// The controller's folder, the run files and the checkpoints must be on a file system that all nodes
// share. No word of a submission reaches a shell: the scripts are fixed, and the words are their
// arguments.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/base/result.h"
#include "tessera/orchestrate/live/backend.h"

namespace tessera::share {

// Returns Slurm's nodes with GPUs that are up, with their types. Errors: there is no Slurm on this
// machine, or no such node. Faults: Slurm does not answer.
Result<std::vector<BackendNode>> slurm_nodes();
// Makes the back end, and writes its scripts to the folder. Errors and faults: those of slurm_nodes.
Result<std::unique_ptr<Backend>> make_slurm(const BackendSetup& setup);

}  // namespace tessera::share
