// The operator tutorial_cpp::snake, for PyTorch.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sin.h>
#include <torch/library.h>

at::Tensor snake(const at::Tensor& x, double frequency) {
  at::Tensor sine = at::sin(x * frequency);
  return x + sine * sine / frequency;
}

at::Tensor allocate(const at::Tensor& x, double frequency) { return at::empty_like(x); }

TORCH_LIBRARY(tutorial_cpp, library) { library.def("snake(Tensor x, float frequency) -> Tensor"); }
TORCH_LIBRARY_IMPL(tutorial_cpp, CPU, library) { library.impl("snake", snake); }
TORCH_LIBRARY_IMPL(tutorial_cpp, Meta, library) { library.impl("snake", allocate); }
