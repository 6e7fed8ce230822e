// Moves the halos of a graph that is cut over ranks (sparse/graphs/partition.h): rows of x before a
// product, and gradients of them back behind its derivative.
//
//   fetch_halo(comm, part, x);
//   TESSERA_TRY_VOID(spmm(part.view<double>({}), options, x, y));
#pragma once

#include "tessera/comm/communicator.h"
#include "tessera/sparse/graphs/partition.h"

namespace tessera::sparse {

// Collective over all ranks of the communicator, whose ranks are those of the parts; the matrices have
// part.local_nodes() rows. fetch_halo fills the rows of the halo. return_halo adds what the halo's rows
// hold to the owners' rows, by rank; the rows of the halo are left as they are.
template <class T>
void fetch_halo(comm::Communicator& comm, const GraphPart& part, const Matrix<T>& x);
template <class T>
void return_halo(comm::Communicator& comm, const GraphPart& part, const Matrix<T>& dx);

}  // namespace tessera::sparse
