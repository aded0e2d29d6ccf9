// Operations of MLX's graph whose arithmetic is somebody else's.
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "annulus.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/c/error.h"
#include "mlx/c/private/enums.h"
#include "mlx/c/private/stream.h"
#include "mlx/c/private/vector.h"
#include "mlx/mlx.h"
#include "mlx/primitives.h"

namespace mx = mlx::core;

namespace {

// Releases the computation once nobody can run it any more.
struct Computation {
  explicit Computation(annulus_computation it) : it(it) {}
  Computation(const Computation&) = delete;
  Computation& operator=(const Computation&) = delete;
  ~Computation() {
    it.release(it.owner);
  }

  annulus_computation it;
};

// What a view points to. The arrays themselves are kept alive by MLX until the stream has passed the operation.
struct Seen {
  explicit Seen(mx::array& array)
      : data(array.data<void>()),
        shape(array.shape()),
        strides(array.strides()),
        dtype(mlx_dtype_to_c(array.dtype())) {}

  annulus_view view() const {
    return {data, shape.data(), strides.data(), shape.size(), dtype};
  }

  void* data;
  mx::Shape shape;
  mx::Strides strides;
  mlx_dtype dtype;
};

class Compute : public mx::Primitive {
 public:
  Compute(mx::Stream stream, const char* name, std::shared_ptr<Computation> computation)
      : Primitive(stream), name_(name), computation_(std::move(computation)) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    auto& encoder = mx::cpu::get_command_encoder(stream());
    std::vector<Seen> seen;
    seen.reserve(inputs.size() + outputs.size());
    for (auto input : inputs) {
      encoder.set_input_array(input);
      seen.emplace_back(input);
    }
    for (auto& output : outputs) {
      output.set_data(mx::allocator::malloc(output.nbytes()));
      encoder.set_output_array(output);
      seen.emplace_back(output);
    }
    encoder.dispatch([computation = computation_, seen = std::move(seen), count = inputs.size(), name = name_]() {
      std::vector<annulus_view> views;
      views.reserve(seen.size());
      for (auto& one : seen) {
        views.push_back(one.view());
      }
      char problem[256] = "";
      auto failed = computation->it.run(
          computation->it.owner, views.data(), count, views.data() + count, views.size() - count, problem,
          sizeof(problem));
      if (failed) {
        // MLX keeps what a task throws for whoever waits for the stream.
        throw std::runtime_error(std::string(name) + ": " + problem);
      }
    });
  }

  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw std::runtime_error(std::string(name_) + " runs on the CPU only");
  }

  const char* name() const override {
    return name_;
  }

 private:
  const char* name_;
  std::shared_ptr<Computation> computation_;
};

} // namespace

extern "C" int annulus_compute(
    mlx_vector_array* res,
    const char* name,
    mlx_vector_array inputs,
    const annulus_view* outputs,
    size_t output_count,
    annulus_computation computation,
    mlx_stream stream) {
  auto owned = std::make_shared<Computation>(computation);
  try {
    std::vector<mx::Shape> shapes;
    std::vector<mx::Dtype> dtypes;
    for (size_t i = 0; i < output_count; i++) {
      shapes.emplace_back(outputs[i].shape, outputs[i].shape + outputs[i].dim);
      dtypes.push_back(mlx_dtype_to_cpp(outputs[i].dtype));
    }
    auto primitive = std::make_shared<Compute>(mlx_stream_get_(stream), name, std::move(owned));
    mlx_vector_array_set_(
        *res, mx::array::make_arrays(std::move(shapes), dtypes, primitive, mlx_vector_array_get_(inputs)));
  } catch (std::exception& e) {
    mlx_error(e.what());
    return 1;
  }
  return 0;
}
