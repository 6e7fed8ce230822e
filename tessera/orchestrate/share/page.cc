#include "tessera/orchestrate/share/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace tessera::share {
namespace {

constexpr double kWidth = 1100, kLeft = 70, kRight = 40;  // kRight: for the last time of the axis
constexpr size_t kMostBoxes = 30'000;  // of a chart; shorter boxes are left out beyond that
constexpr size_t kMostRows = 200;      // of the table of reasons

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += static_cast<unsigned char>(c) < 32 ? ' ' : c;
    }
  }
  return out;
}

// Neighbours in number get colours that are far apart.
std::string colour(int job) {
  return fmt::format("hsl({},{}%,{}%)", job * 137 % 360, 45 + job % 3 * 12, 52 + job % 4 * 6);
}

// A time during which a job had the same GPUs.
struct Stay {
  int job = 0;
  double from_s = 0, to_s = 0;
  Allocation allocation;
};

std::vector<Stay> stays_of(const Outcome& outcome) {
  std::vector<Stay> out, open(outcome.jobs.size());
  for (const Change& change : outcome.changes) {
    Stay& stay = open[static_cast<size_t>(change.job)];
    if (!stay.allocation.empty() && change.at_s > stay.from_s) {
      out.push_back(stay);
      out.back().to_s = change.at_s;
    }
    stay = {change.job, change.at_s, 0, change.allocation};
  }
  if (out.size() <= kMostBoxes) return out;
  std::nth_element(
      out.begin(), out.begin() + kMostBoxes, out.end(),
      [](const Stay& a, const Stay& b) { return a.to_s - a.from_s > b.to_s - b.from_s; });
  out.resize(kMostBoxes);
  return out;
}

class Chart {
 public:
  Chart(double end_s, double height) : scale_((kWidth - kLeft) / std::max(end_s, 1.0)) {
    const double width = kWidth + kRight;
    out_ = fmt::format("<svg viewBox=\"0 0 {} {}\" width=\"{}\">\n", width, height + 22, width);
    for (int i = 0; i <= 8; ++i) {
      const double at = end_s * i / 8;
      out_ += fmt::format(
          "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"0\" y2=\"{1:.1f}\" class=\"grid\"/>"
          "<text x=\"{0:.1f}\" y=\"{2:.1f}\" class=\"tick\">{3}</text>\n",
          x(at), height, height + 14, time_text(at));
    }
  }
  double x(double at_s) const { return kLeft + at_s * scale_; }
  void label(double y, const std::string& text) {
    out_ += fmt::format("<text x=\"{}\" y=\"{:.1f}\" class=\"label\">{}</text>\n", kLeft - 6, y,
                        escaped(text));
  }
  void box(double from_s, double to_s, double y, double height, const std::string& fill,
           const std::string& title) {
    out_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\">"
        "<title>{}</title></rect>\n",
        x(from_s), y, std::max((to_s - from_s) * scale_, 0.3), height, fill, escaped(title));
  }
  void add(const std::string& svg) { out_ += svg; }
  std::string end() const { return out_ + "</svg>\n"; }

 private:
  double scale_;
  std::string out_;
};

std::string title_of(const JobSpec& job, const Stay& stay) {
  return fmt::format("{}: {} GPUs, {} to {}", job.name, stay.allocation.gpus(),
                     time_text(stay.from_s), time_text(stay.to_s));
}

std::string node_chart(const std::vector<JobSpec>& jobs, const Machines& machines,
                       const std::vector<Stay>& stays, double end_s) {
  const double row = std::clamp(640.0 / static_cast<double>(machines.nodes.size()), 3.0, 26.0);
  Chart chart(end_s, row * static_cast<double>(machines.nodes.size()));
  const size_t every = row >= 10 ? 1 : static_cast<size_t>(12 / row) + 1;
  for (size_t node = 0; node < machines.nodes.size(); node += every)
    chart.label(row * (static_cast<double>(node) + 0.7), fmt::format("node {}", node));
  // A job takes the lowest free part of each node's row.
  std::vector<std::vector<double>> busy_until(machines.nodes.size());
  for (size_t node = 0; node < machines.nodes.size(); ++node)
    busy_until[node].assign(static_cast<size_t>(machines.nodes[node].gpus), 0);
  std::vector<const Stay*> order;
  for (const Stay& stay : stays) order.push_back(&stay);
  std::stable_sort(order.begin(), order.end(),
                   [](const Stay* a, const Stay* b) { return a->from_s < b->from_s; });
  for (const Stay* stay : order) {
    for (const Allocation::Part& part : stay->allocation.parts) {
      auto& slots = busy_until[static_cast<size_t>(part.node)];
      const double height = row / static_cast<double>(slots.size());
      int left = part.gpus;
      for (size_t slot = 0; slot < slots.size() && left > 0; ++slot) {
        if (slots[slot] > stay->from_s + 1e-6) continue;
        slots[slot] = stay->to_s;
        --left;
        chart.box(stay->from_s, stay->to_s, row * part.node + height * static_cast<double>(slot),
                  height, colour(stay->job), title_of(jobs[static_cast<size_t>(stay->job)], *stay));
      }
    }
  }
  return chart.end();
}

// Returns a chart in which the sizes of the jobs are stacked in the order of their numbers.
std::string size_chart(const std::vector<JobSpec>& jobs, const Machines& machines,
                       const Outcome& outcome, double end_s) {
  constexpr double kHeight = 200;
  const double unit = kHeight / machines.gpus();
  Chart chart(end_s, kHeight);
  chart.label(12, fmt::format("{} GPUs", machines.gpus()));
  std::map<int, Stay> now;
  double last = 0;
  const size_t every = outcome.changes.size() / kMostBoxes + 1;
  size_t number = 0;
  const auto draw = [&](double to) {
    if (to <= last || number++ % every != 0) return;
    double y = kHeight;
    for (const auto& [job, stay] : now) {
      const double height = unit * stay.allocation.gpus();
      y -= height;
      chart.box(last, to, y, height, colour(job), title_of(jobs[static_cast<size_t>(job)], stay));
    }
    last = to;
  };
  for (const Change& change : outcome.changes) {
    draw(change.at_s);
    if (change.allocation.empty()) {
      now.erase(change.job);
    } else {
      now[change.job] = {change.job, change.at_s, end_s, change.allocation};
    }
  }
  return chart.end();
}

std::string queue_chart(const Outcome& outcome, double end_s) {
  constexpr double kHeight = 120;
  Chart chart(end_s, kHeight);
  int most = 1;
  for (const QueuePoint& point : outcome.queue) most = std::max(most, point.waiting);
  chart.label(12, fmt::format("{} wait", most));
  std::string points;
  const size_t every = outcome.queue.size() / 4000 + 1;
  for (size_t i = 0; i < outcome.queue.size(); i += every) {
    const QueuePoint& point = outcome.queue[i];
    points += fmt::format("{:.1f},{:.1f} ", chart.x(point.at_s),
                          kHeight - kHeight * 0.95 * point.waiting / most);
  }
  chart.add("<polyline class=\"queue\" points=\"" + points + "\"/>\n");
  return chart.end();
}

std::string reasons(const std::vector<JobSpec>& jobs, const Outcome& outcome) {
  std::vector<size_t> order;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (outcome.jobs[i].waited_s > 0) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return outcome.jobs[a].waited_s > outcome.jobs[b].waited_s;
  });
  std::string out =
      "<table><tr><th>job</th><th>GPUs</th><th>JCT</th><th>waited</th><th>why</th></tr>\n";
  for (size_t k = 0; k < std::min(order.size(), kMostRows); ++k) {
    const size_t i = order[k];
    const JobOutcome& job = outcome.jobs[i];
    out += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{:.0f} s</td><td>{:.0f} s</td><td>{}</td></tr>\n",
        escaped(jobs[i].name), jobs[i].gpus, job.end_s - jobs[i].submit_s, job.waited_s,
        escaped(job.waits_for.text));
  }
  return out + "</table>\n" +
         (order.size() > kMostRows
              ? fmt::format("<p>{} further jobs waited for a shorter time.</p>\n",
                            order.size() - kMostRows)
              : "");
}

constexpr const char* kStyle =
    R"(body { font: 14px system-ui, sans-serif; margin: 24px; color: #222; }
svg { display: block; margin: 4px 0 18px; } .grid { stroke: #ddd; } rect { stroke: none; }
.tick { font-size: 10px; text-anchor: middle; fill: #666; } .label { font-size: 10px; text-anchor: end; }
.queue { fill: none; stroke: #b03030; stroke-width: 1.5; } table { border-collapse: collapse; }
td, th { text-align: left; padding: 2px 12px 2px 0; border-bottom: 1px solid #eee; }
td:not(:last-child) { white-space: nowrap; } code { color: #555; })";

}  // namespace

std::string to_page(const PageText& text, const std::vector<JobSpec>& jobs,
                    const Machines& machines, const Outcome& outcome, const Summary& summary) {
  const std::vector<Stay> stays = stays_of(outcome);
  const double end_s = summary.makespan_s;
  std::string out = fmt::format(
      "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title><style>{1}"
      "</style></head><body>\n<h1>{0}</h1>\n",
      escaped(text.title), kStyle);
  out += fmt::format(
      "<p>{} jobs, mean JCT {:.0f} s, median {:.0f} s, 99 % within {:.0f} s; the last ends after "
      "{:.1f} "
      "h. {:.1f} % of the GPU time is used, {:.1f} GPU hours are lost in switches.</p>\n",
      jobs.size(), summary.mean_jct_s, summary.median_jct_s, summary.p99_jct_s, end_s / 3600,
      100 * summary.utilisation, summary.switching_gpu_h);
  out += "<h2>Nodes over time</h2>\n" + node_chart(jobs, machines, stays, end_s);
  out += "<h2>Sizes of jobs over time</h2>\n" + size_chart(jobs, machines, outcome, end_s);
  out += "<h2>The queue</h2>\n" + queue_chart(outcome, end_s);
  out += "<h2>Why jobs waited</h2>\n" + reasons(jobs, outcome);
  return out + fmt::format("<p><code>{}</code></p>\n</body></html>\n", escaped(text.command));
}

}  // namespace tessera::share
