// Measures MPI's all-reduce for the tests of emulated networks.
//
//   mpirun ... all_reduce BYTES REPEATS
//
// Rank 0 prints the seconds of each repeat after a first one that does not count: of the slowest rank.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 3) {
    std::fprintf(stderr, "expected BYTES REPEATS, found %d arguments\n", argc - 1);
    return 2;
  }
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const auto count = static_cast<size_t>(std::atol(argv[1])) / sizeof(float);
  const long repeats = std::atol(argv[2]);
  std::vector<float> in(count, 1.0F), out(count);
  for (long i = 0; i <= repeats; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    MPI_Allreduce(in.data(), out.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
    double seconds = MPI_Wtime() - start;
    double slowest = 0;
    MPI_Reduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0 && i > 0) std::printf("%.6f\n", slowest);
  }
  MPI_Finalize();
  return 0;
}
