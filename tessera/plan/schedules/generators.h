// The generators of the named schedules. A generator checks the shape and returns for each place
// its list of F, B and W runs. make_schedule then drops the blocks that a stage does not have and
// checks that the result finishes.
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/base/result.h"
#include "tessera/plan/schedules/schedule.h"

namespace tessera::schedules {

// Checks that each place has exactly one stage and each stage one place.
Status one_stage_a_place(std::string_view name, const PipelineShape& shape);
// Checks that the number of stages is a multiple of the number of places, and that stage s is only
// at place s mod places.
Status round_robin(std::string_view name, const PipelineShape& shape);
// Checks that `stage` is at `place` and at no other place.
Status stage_at(std::string_view name, const PipelineShape& shape, int64_t stage, int64_t place);
// Returns the error "schedule '<name>': expected <expected>, found <found>".
tl::unexpected<Error> wrong_shape(std::string_view name, std::string_view expected,
                                  std::string_view found);

Result<Schedule> gpipe(const PipelineShape& shape);
Result<Schedule> one_f_one_b(const PipelineShape& shape);
Result<Schedule> eager_one_f_one_b(const PipelineShape& shape);
Result<Schedule> interleaved(const PipelineShape& shape);
Result<Schedule> zero_bubble_h1(const PipelineShape& shape);
Result<Schedule> zero_bubble_h2(const PipelineShape& shape);
Result<Schedule> zero_bubble_v(const PipelineShape& shape);
Result<Schedule> chimera(const PipelineShape& shape);
Result<Schedule> n_forward_one_backward(const PipelineShape& shape);
Result<Schedule> interlaced(const PipelineShape& shape);
Result<Schedule> token(const PipelineShape& shape);
Result<Schedule> token_one_f_one_b(const PipelineShape& shape);

}  // namespace tessera::schedules
