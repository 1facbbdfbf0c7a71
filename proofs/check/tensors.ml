(* Tensors of a .safetensors file, mapped: rows of words, as they are stored. *)

exception Unreadable of string

type bytes_ = (char, Bigarray.int8_unsigned_elt, Bigarray.c_layout) Bigarray.Array1.t
type tensor = { dtype : string; shape : int list; data : bytes_; start : int; width : int }

let fail file what = raise (Unreadable (file ^ ": " ^ what))

let map file =
  let fd = try Unix.openfile file [ Unix.O_RDONLY ] 0
    with Unix.Unix_error (e, _, _) -> fail file (Unix.error_message e) in
  Fun.protect ~finally:(fun () -> Unix.close fd) (fun () ->
    if (Unix.fstat fd).Unix.st_kind <> Unix.S_REG then fail file "expected a regular file";
    if (Unix.fstat fd).Unix.st_size < 8 then fail file "expected a safetensors file";
    Bigarray.array1_of_genarray (Unix.map_file fd Bigarray.char Bigarray.c_layout false [| -1 |]))

let width_of = function "BF16" | "F16" -> Some 2 | "F32" -> Some 4 | _ -> None

let load file =
  let bytes = map file in
  let size = Bigarray.Array1.dim bytes in
  let length = ref 0 in
  for i = 7 downto 0 do
    if !length > size then fail file "header length beyond the file";
    length := (!length lsl 8) lor Char.code bytes.{i}
  done;
  if !length < 2 || !length > size - 8 then fail file "header length beyond the file";
  let header = String.init !length (fun i -> bytes.{8 + i}) in
  let base = 8 + !length in
  match Json.parse header with
  | exception Json.Error e -> fail file ("header: " ^ e)
  | Json.Object members ->
    List.filter_map (fun (name, v) ->
      if name = "__metadata__" then None else
      try
        let dtype = Json.text name "dtype" v in
        let integers key = match Json.member name key v with
          | Json.Array l -> List.map (function
              | Json.Number s when String.length s <= 15 && String.for_all (fun c -> c >= '0' && c <= '9') s ->
                int_of_string s
              | _ -> fail file (name ^ "." ^ key ^ ": expected counts")) l
          | _ -> fail file (name ^ "." ^ key ^ ": expected an array") in
        match width_of dtype with
        | None -> None
        | Some width ->
          let shape = integers "shape" in
          let elements = List.fold_left (fun a n ->
            if n <> 0 && a > max_int / 8 / n then fail file (name ^ ": shape too large") else a * n) 1 shape in
          match integers "data_offsets" with
          | [ from; until ] when from <= until && until <= size - base && until - from = elements * width ->
            Some (name, { dtype; shape; data = bytes; start = base + from; width })
          | _ -> fail file (name ^ ": offsets do not fit shape and file")
      with Json.Error e -> fail file e) members
  | _ -> fail file "header: expected an object"

(* Rows of one head: [row i] is a list of words, [feed] its bytes. *)
type rows = { count : int; channels : int; word_bytes : int; offset : int -> int; source : bytes_ }

let rows_of tensor layout batch head =
  let at first count stride channels = Some {
    count; channels; word_bytes = tensor.width; source = tensor.data;
    offset = (fun i -> tensor.start + tensor.width * (first + i * stride)) } in
  match layout, tensor.shape with
  | "nd", [ n; d ] when batch = 0 && head = 0 -> at 0 n d d
  | "hnd", [ h; n; d ] when batch = 0 && head < h -> at (head * n * d) n d d
  | "bhnd", [ b; h; n; d ] when batch < b && head < h -> at ((batch * h + head) * n * d) n d d
  | "bnhd", [ b; n; h; d ] when batch < b && head < h -> at ((batch * n * h + head) * d) n (h * d) d
  | _ -> None

let word r i c =
  let at = r.offset i + (r.word_bytes * c) in
  let byte k = Char.code (Bigarray.Array1.get r.source (at + k)) in
  if r.word_bytes = 2 then byte 0 lor (byte 1 lsl 8)
  else byte 0 lor (byte 1 lsl 8) lor (byte 2 lsl 16) lor (byte 3 lsl 24)

let digest r =
  let s = Sha256.start () in
  for i = 0 to r.count - 1 do
    let at = r.offset i in
    for k = 0 to (r.word_bytes * r.channels) - 1 do Sha256.feed s r.source.{at + k} done
  done;
  Sha256.finish s
