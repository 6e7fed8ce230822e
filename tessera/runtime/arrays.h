// Samples from NumPy arrays and HDF5 datasets: an array for each input of the model, for example
// images and their labels. Element n of every array belongs to sample n. A rank reads only the box
// of each sample that its plan gives it.
//
// The samples of a step follow one another in an order that visits each sample once before any
// comes again: with S samples a step and N in the arrays, place g = (step - 1) * S + i is sample g
// mod N of pass g div N, and each pass is a permutation of its own, a function of seed, stream and
// pass. Nothing is kept in memory: the permutation is a Feistel network on the numbers below N.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "tessera/base/result.h"
#include "tessera/data/data_config.h"
#include "tessera/runtime/data.h"

namespace tessera {

// Opens the arrays. `config.arrays` has "x.npy" or "x.h5:dataset" (data/array_file.h) for every
// input of the model that the trainer does not make itself (as the step's number). Numbers for
// floating inputs other than targets are multiplied by `config.scale`. Numbers for integer inputs
// are in the range that the model states, or -1: in targets, where the loss ignores it, and in the
// empty places of bags of ids.
//
// The shape of an array is [samples, ...]: after the samples come the dims of the input without
// those that count samples (the batch, for a resnet also `sample`), where dims of size 1 do not
// matter; or it is flat: [samples, number of elements].
//
// `config.ahead` gives an input, in each step, the samples that its file has for the step n later;
// so one of two inputs that share a file may be ahead of the other.
//
// `config.shift` and `flip` move each sample of a floating input that is no target by -shift to
// shift places along each of its last two dims, with zeros coming in, and then mirror it along the
// last dim or not, all equally likely. The draw depends on input, step and place in the batch, so
// two inputs with the same samples are changed independently. A rank reads from the file only what
// moves into its box.
//
// Errors, one line each: a file that cannot be read or is damaged; an input that is missing or that
// the model lacks; shapes that do not fit; integers from numbers with a fraction; arrays with
// different numbers of samples. An integer out of range, and NaN, is found when it is read.
Result<std::unique_ptr<DataSource>> open_arrays(const DataConfig& config, const DataWants& wants);

// Returns such names for the datasets of one HDF5 file. Errors: the model has other inputs than one
// and its targets.
Result<std::map<std::string, std::string>> arrays_of_hdf5(const Hdf5Config& config,
                                                          const Model& model);

}  // namespace tessera
