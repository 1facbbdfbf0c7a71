// 2^x as a pair of floats, for x = k + r, k a multiple of 1/32 and |r| <= 1/64: table and series.
#pragma once

namespace headroom {

/// 2^(j/32) = head + tail within 2^-50.
inline constexpr float power_head[32] = {
    0x1p+0F,        0x1.059b0ep+0F, 0x1.0b5586p+0F, 0x1.11301ep+0F, 0x1.172b84p+0F, 0x1.1d4874p+0F,
    0x1.2387a6p+0F, 0x1.29e9ep+0F,  0x1.306fep+0F,  0x1.371a74p+0F, 0x1.3dea64p+0F, 0x1.44e086p+0F,
    0x1.4bfdaep+0F, 0x1.5342b6p+0F, 0x1.5ab07ep+0F, 0x1.6247ecp+0F, 0x1.6a09e6p+0F, 0x1.71f75ep+0F,
    0x1.7a1148p+0F, 0x1.82589ap+0F, 0x1.8ace54p+0F, 0x1.93737cp+0F, 0x1.9c4918p+0F, 0x1.a5503cp+0F,
    0x1.ae89fap+0F, 0x1.b7f77p+0F,  0x1.c199bep+0F, 0x1.cb720ep+0F, 0x1.d5818ep+0F, 0x1.dfc974p+0F,
    0x1.ea4afap+0F, 0x1.f50766p+0F};
inline constexpr float power_tail[32] = {0,
                                         -0x1.9d4f52p-25F,
                                         0x1.9f3122p-25F,
                                         -0x1.fdb496p-25F,
                                         -0x1.c15742p-27F,
                                         -0x1.d2e8cap-25F,
                                         0x1.ceac48p-25F,
                                         -0x1.5c0424p-25F,
                                         0x1.4636e2p-25F,
                                         -0x1.18aac6p-25F,
                                         0x1.824684p-25F,
                                         0x1.8624b4p-30F,
                                         -0x1.593abcp-25F,
                                         -0x1.2c561p-25F,
                                         -0x1.5bd5ecp-27F,
                                         -0x1.f8b55p-25F,
                                         0x1.9fcef4p-26F,
                                         0x1.1d8beep-25F,
                                         -0x1.829fdp-25F,
                                         -0x1.accc7cp-26F,
                                         0x1.15506ep-27F,
                                         -0x1.e64744p-25F,
                                         0x1.51f848p-27F,
                                         -0x1.b83b54p-25F,
                                         -0x1.a94b14p-26F,
                                         -0x1.a09438p-25F,
                                         -0x1.3d56b2p-27F,
                                         -0x1.8837ccp-27F,
                                         -0x1.822dbcp-27F,
                                         -0x1.908c94p-25F,
                                         0x1.52486cp-27F,
                                         -0x1.246ebp-26F};

/// 2^r - 1 = c1 r + c2 r^2 + c3 r^3 + c4 r^4 within 2^-43: the terms up to r^4 of the series, and
/// r^5 as the Chebyshev polynomial of degree 5 on [-1/64, 1/64] has it in r^3 and r. c1 as a pair.
inline constexpr float power_c1 = 0x1.62e43p-1F, power_c1_tail = -0x1.092fe4p-29F;
inline constexpr float power_c2 = 0x1.ebfbep-3F, power_c3 = 0x1.c6b168p-5F;
inline constexpr float power_c4 = 0x1.3b2ab6p-7F;

/// At least the error of 2^r 2^(j/32), absolute, as Lanes512::power computes it, |r| <= 2^-6.
/// Account in units of 2^-40. Of 2^r - 1 = a + b: r^2 rounded, 2^-37, times 0.241, 1.9; c2 and the
/// polynomial rounded, 2^-26 together, times r^2, 4.1; b rounded, |b| < 2^-14, 2; series 0.1: at
/// most 8.1, times the table's largest entry 1.958, 15.9. Then tail b, 2^-38, 4; the rest rounded,
/// below 2^-13, 4; and once more with this bound added, 4. Exact: r, the errors of a, of head a and
/// of the sum. Together less than 28. The long test compares every argument.
inline constexpr float power_error = 0x1.cp-36F;

}  // namespace headroom
