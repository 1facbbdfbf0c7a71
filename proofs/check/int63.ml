(* OCaml's integers under the names of MachineIntegers.v: what each operation there is defined to be. *)
external plus : int -> int -> int = "%addint"
external minus : int -> int -> int = "%subint"
external times : int -> int -> int = "%mulint"
external bits_and : int -> int -> int = "%andint"
external equal : int -> int -> bool = "%equal"
external less : int -> int -> bool = "%lessthan"
external at_most : int -> int -> bool = "%lessequal"
let shift_left x n = if n >= 0 && n < 63 then x lsl n else 0
let shift_right x n = if n >= 0 && n < 63 then x asr n else 0
let upper x = x asr 22
let lower x = x land 0x3fffff
