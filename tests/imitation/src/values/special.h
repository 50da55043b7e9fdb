// Operators whose results on a card are not those of the CPU's operator of the same name.
#pragma once
#include <ATen/core/stack.h>
#include <c10/core/Scalar.h>
#include <ATen/core/function_schema.h>

namespace values {

using Stack = torch::jit::Stack;

// Operators whose results on a card are not those of the same operator on the CPU, or that the CPU
// lacks. Arguments and results are views by the host; false: it is none of them.
bool compute_special(const c10::FunctionSchema& schema, const Stack& arguments,
                     const Stack& results);

}  // namespace values
