// The stock kernels by maker. Every hardware fact carries how well it is known and from where; what
// no source establishes is `assumed`, and is then the pessimistic reading where there is one.
#pragma once

#include <string>

#include "reference/model/kernel_model.h"

namespace headroom {

KernelModel maxdiffusion_like(const std::string& machine);  ///< tpu7x, tpu-v6e
KernelModel ampere();
KernelModel ada();
KernelModel hopper();
KernelModel blackwell();
KernelModel cdna3();
KernelModel cpu_avx512_bf16();
KernelModel ieee_fp32();
KernelModel fp16_everywhere();

}  // namespace headroom
