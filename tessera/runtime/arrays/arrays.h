// Reads samples from NumPy arrays and HDF5 datasets. Each input of the model has an array, for
// example one of images and one of their labels. Element n of every array belongs to sample n. A
// rank reads only the box of each sample that its plan gives it.
//
// The order of the samples visits each sample once before any sample comes again. With S samples a
// step and N samples in the arrays, place i of a step has the number g = (step - 1) * S + i over
// all steps, and holds sample g mod N of pass g div N. Each pass visits the samples in a
// permutation of its own, which is a function of seed, stream and pass. Nothing is kept in memory,
// because the permutation is computed by a Feistel network on the numbers below N.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "tessera/base/result.h"
#include "tessera/data/data_config.h"
#include "tessera/runtime/data/data.h"

namespace tessera {

// Opens the arrays. `config.arrays` has "x.npy" or "x.h5:dataset" (data/array_file.h) for every
// input of the model, except those that the trainer makes itself (such as the step's number). The
// numbers for floating inputs are multiplied by `config.scale`, those for targets are not. The
// numbers for integer inputs are in the range that the model states, or -1. In targets the loss
// ignores -1; in bags of ids -1 fills the empty places.
//
// The shape of an array is [samples, ...]. After `samples` come the dims of the input without the
// dims that count samples (the batch, and for a resnet also `sample`); dims of size 1 do not
// matter. An array may also be flat: [samples, number of elements].
//
// `config.ahead` maps an input to a number n: in each step the input gets the samples that its
// file gives without this key n steps later. So one of two inputs that share a file may be ahead
// of the other.
//
// `config.shift` and `flip` change each sample of a floating input that is no target. `shift` moves
// the sample by -shift to shift places along each of its last two dims and fills with zeros. `flip`
// then mirrors the sample along the last dim, or does not. All results are equally likely. The
// random draw depends on input, step and place in the batch, so two inputs with the same samples
// are changed independently. A rank reads from the file only the elements that move into its box.
//
// Errors, one line each: a file that cannot be read or is damaged; an input that is missing or that
// the model lacks; shapes that do not fit; integers from numbers with a fraction; arrays with
// different numbers of samples. An integer out of range or a NaN is found only when it is read.
Result<std::unique_ptr<DataSource>> open_arrays(const DataConfig& config, const DataWants& wants);

// Returns such an array name ("x.h5:dataset") for each input, for the datasets of one HDF5 file.
// Errors: the model's inputs are not one input and its targets.
Result<std::map<std::string, std::string>> arrays_of_hdf5(const Hdf5Config& config,
                                                          const Model& model);

}  // namespace tessera
