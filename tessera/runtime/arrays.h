// Samples from NumPy arrays and HDF5 datasets: an array for each input of the model, for example
// images and their labels. Element n of every array belongs to sample n. Of each sample a rank reads
// the box that its plan gives it, and nothing else.
//
// The samples of a step follow one another in an order that visits each sample once before any
// comes again: with S samples a step and N in the arrays, place g = (step - 1) * S + i is sample
// g mod N of pass g div N, and each pass is a permutation of its own, a function of seed, stream
// and pass. Nothing is kept in memory: the permutation is a Feistel network on the numbers below N.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "tessera/base/result.h"
#include "tessera/data/data_config.h"
#include "tessera/runtime/data.h"

namespace tessera {

// `config.arrays`: by input of the model "x.npy" or "x.h5:dataset" (data/array_file.h); every input
// that the trainer does not make (the number of the step) has one.
// Numbers for floating inputs are multiplied by `config.scale`, but for targets; those of integer inputs are in the range
// that the model says, or -1: of targets, which the loss then ignores, and in the empty places of
// bags of ids.
//
// The shape of an array is [samples, ...]: behind the samples it has the dims of the input without
// those that count samples (the batch, of a resnet also `sample`), where dims of size 1 do not
// matter, or it is flat: [samples, number of elements].
//
// `config.ahead`: an input gets, n steps early, the samples that its file has for the step n later; so
// of two inputs that share a file one may be ahead of the other.
//
// `config.shift` and `flip`: what a floating input that is no target has for each sample is moved by
// -shift to shift places along each of its last two dims, zeros coming in, and then mirrored along
// the last dim or not, all equally likely. That is drawn by input, step and place in the batch, so
// two inputs with the same samples are changed independently. Of the file a rank reads what comes to
// stand in its box.
//
// Errors, one line each: a file that cannot be read or is damaged; an input that is missing or that
// the model lacks; shapes that do not fit; integers from numbers with a fraction; arrays with
// different numbers of samples. An integer out of range, and NaN, is found when it is read.
Result<std::unique_ptr<DataSource>> open_arrays(const DataConfig& config, const DataWants& wants);

// The same names for the datasets of one HDF5 file. Error: the model has other inputs than one and
// its targets.
Result<std::map<std::string, std::string>> arrays_of_hdf5(const Hdf5Config& config,
                                                          const Model& model);

}  // namespace tessera
