// FlashAttention-4's exp2 on the FMA units: coefficients and what was measured of them.
//
// Source: Dao-AILab/flash-attention, flash_attn/cute/utils.py, POLY_EX2 and ex2_emulation.
#pragma once

namespace headroom {

inline constexpr int fa4_degrees = 5;
/// 2^f on [0, 1) is about c[0] + c[1] f + ... + c[degree] f^degree; numbers of FP32 as published,
/// "fpminimax(exp(x * log(2.0)), degree, [|1,24...|], [0;1], relative)" of Sollya.
inline constexpr float fa4_coefficients[fa4_degrees + 1][fa4_degrees + 1] = {
    {1.0F},
    {1.0F, 0x1.d8518ap-1F},
    {1.0F, 0x1.54e1c8p-1F, 0x1.520794p-2F},
    {1.0F, 0x1.63ea32p-1F, 0x1.d20d48p-3F, 0x1.3be13ap-4F},
    {1.0F, 0x1.62d67ep-1F, 0x1.ee2a1cp-3F, 0x1.abd484p-5F, 0x1.b83c6ep-7F},
    {1.0F, 0x1.62e4bep-1F, 0x1.ebdae6p-3F, 0x1.c921acp-5F, 0x1.27634cp-7F, 0x1.e9b62cp-10F},
};

}  // namespace headroom
