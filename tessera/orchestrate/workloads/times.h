// Times of day in workloads.
#pragma once

#include <string>
#include <vector>

#include "tessera/orchestrate/share/job.h"
#include "tessera/orchestrate/workloads/columns.h"

namespace tessera::share {

// Reads a date and time as seconds: "2017-10-03 14:20:00", with a T between, or a plain number of
// seconds. Dates count from 1970 without time zones. Errors: another form.
Result<double> time_of(const Columns& file, size_t row, std::string_view column);
// Reads a duration as seconds: "1-02:03:04", "02:03:04", "03:04".
Result<double> duration_of(const Columns& file, size_t row, std::string_view column);
// Sorts the jobs by submission, and lets time begin with the first.
void start_at_zero(std::vector<JobSpec>& jobs);

}  // namespace tessera::share
