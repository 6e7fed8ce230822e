#include "tessera/planners/published/splitbrain.h"

#include <limits>

namespace tessera::published {
namespace {

// Returns the elements that a worker receives when `count` workers average `elements` elements on
// a ring.
double ring_average(double count, double elements) { return 2 * (count - 1) / count * elements; }

}  // namespace

double dense_parameters_of(const std::vector<double>& widths) {
  double sum = 0;
  for (size_t i = 1; i < widths.size(); ++i) sum += widths[i - 1] * widths[i];
  return sum;
}

double memory_saving(const SplitNet& net, double group) {
  return net.dense_parameters / (net.conv_parameters + net.dense_parameters) * (1 - 1 / group);
}

double dense_share_for(double saving, double group) { return saving / (1 - 1 / group); }

SplitTraffic split_traffic(const SplitNet& net, double workers, double group, double batch) {
  SplitTraffic out;
  // Elements that are moved for each element of a layer: each is gathered once and scattered once
  // a turn.
  const double turns = 2 * (group - 1);
  double between = 0;
  for (size_t i = 1; i + 1 < net.widths.size(); ++i) between += net.widths[i];
  out.border = batch * turns * net.widths[0];
  out.shards = batch * turns * between;
  out.conv_average = ring_average(workers, net.conv_parameters);
  out.dense_average = ring_average(workers / group, net.dense_parameters / group);
  out.data_parallel_dense = ring_average(workers, net.dense_parameters);
  const double a_sample = turns * (net.widths[0] + between);
  out.break_even_batch = a_sample > 0 ? (out.data_parallel_dense - out.dense_average) / a_sample
                                      : std::numeric_limits<double>::infinity();
  return out;
}

double split_latency_seconds(const SplitNet& net, double group, double latency_seconds) {
  const auto layers = static_cast<double>(net.widths.size() - 1);
  return group * 2 * layers * (group - 1) * latency_seconds;
}

std::vector<SplitChoice> split_choices(const SplitQuestion& question) {
  std::vector<SplitChoice> out;
  const auto workers = static_cast<int64_t>(question.workers);
  for (int64_t group = 1; group <= workers; ++group) {
    if (workers % group != 0) continue;
    const auto k = static_cast<double>(group);
    const SplitNet& net = question.net;
    const SplitTraffic traffic = split_traffic(net, question.workers, k, question.batch);
    const double elements =
        traffic.border + traffic.shards + traffic.conv_average + traffic.dense_average;
    SplitChoice choice;
    choice.group = group;
    choice.seconds = question.compute_seconds +
                     split_latency_seconds(net, k, question.latency_seconds) +
                     elements * question.element_bytes / question.bytes_per_second;
    choice.memory_bytes = question.copies * question.element_bytes *
                              (net.conv_parameters + net.dense_parameters / k) +
                          question.activation_bytes;
    choice.fits = choice.memory_bytes <= question.memory_bytes;
    out.push_back(choice);
  }
  return out;
}

std::optional<SplitChoice> best_group(const SplitQuestion& question) {
  std::optional<SplitChoice> best;
  for (const SplitChoice& choice : split_choices(question)) {
    if (choice.fits && (!best || choice.seconds < best->seconds)) best = choice;
  }
  return best;
}

}  // namespace tessera::published
