#include "tessera/orchestrate/workloads/times.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>

#include "tessera/base/text.h"

namespace tessera::share {

Result<double> time_of(const Columns& file, size_t row, std::string_view column) {
  const std::string text(trim(file.text(row, column)));
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0, end = 0;
  if (std::sscanf(text.c_str(), "%4d-%2d-%2d%*1[ T]%2d:%2d:%2d%n", &year, &month, &day, &hour,
                  &minute, &second, &end) == 6) {
    const std::chrono::year_month_day date{std::chrono::year(year),
                                           std::chrono::month(static_cast<unsigned>(month)),
                                           std::chrono::day(static_cast<unsigned>(day))};
    const bool is_time =
        hour >= 0 && hour < 24 && minute >= 0 && minute < 60 && second >= 0 && second <= 60;
    if (date.ok() && is_time) {
      const auto days = std::chrono::sys_days(date).time_since_epoch().count();
      return static_cast<double>(days) * 86400.0 + hour * 3600.0 + minute * 60.0 + second;
    }
  }
  const auto value = parse_double(text);
  if (value && *value >= 0 && *value <= kMostNumber) return *value;
  return invalid_input(fmt::format(
      "{}: expected a time as 2026-01-31 14:20:00, or seconds {}, "
      "found '{}'",
      file.where(row, column),
      value && *value > 0 ? fmt::format("of at most {:g}", kMostNumber) : "of at least 0", text));
}

Result<double> duration_of(const Columns& file, size_t row, std::string_view column) {
  const std::string text(trim(file.text(row, column)));
  const size_t dash = text.find('-');
  const auto days =
      dash == std::string::npos ? Result<int64_t>(0) : parse_int(text.substr(0, dash));
  const std::vector<std::string> parts =
      split_text(dash == std::string::npos ? text : text.substr(dash + 1), ':');
  double out = 0;
  bool is_right = days && *days >= 0 && parts.size() >= 2 && parts.size() <= 3;
  for (const std::string& part : parts) {
    const auto value = parse_int(part);
    is_right = is_right && value && *value >= 0;
    if (is_right) out = out * 60 + static_cast<double>(*value);
  }
  if (is_right) out += static_cast<double>(*days) * 86400;
  if (is_right && out <= kMostNumber) return out;
  return invalid_input(fmt::format("{}: expected a duration as 1-02:03:04, found '{}'",
                                   file.where(row, column), text));
}

void start_at_zero(std::vector<JobSpec>& jobs) {
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const JobSpec& a, const JobSpec& b) { return a.submit_s < b.submit_s; });
  if (jobs.empty()) return;
  const double first = jobs.front().submit_s;
  for (JobSpec& job : jobs) job.submit_s -= first;
}

}  // namespace tessera::share
