(* Tensors of .safetensors and .npy files, mapped: rows of words, as they are stored. *)

exception Unreadable of string

type bytes_ = Sha256.bytes_
type tensor = { dtype : string; shape : int list; data : bytes_; start : int; width : int }

external get16 : bytes_ -> int -> int = "%caml_bigstring_get16"
external get32 : bytes_ -> int -> int32 = "%caml_bigstring_get32"

let fail file what = raise (Unreadable (file ^ ": " ^ what))

let map file =
  let fd = try Unix.openfile file [ Unix.O_RDONLY; Unix.O_NONBLOCK ] 0
    with Unix.Unix_error (e, _, _) -> fail file (Unix.error_message e) in
  Fun.protect ~finally:(fun () -> Unix.close fd) (fun () ->
    if (Unix.fstat fd).Unix.st_kind <> Unix.S_REG then fail file "expected a regular file";
    if (Unix.fstat fd).Unix.st_size < 16 then fail file "found less than 16 bytes, expected tensors";
    try Bigarray.array1_of_genarray (Unix.map_file fd Bigarray.char Bigarray.c_layout false [| -1 |])
    with Unix.Unix_error (e, _, _) -> fail file (Unix.error_message e))

let width_of = function "BF16" | "F16" -> Some 2 | "F32" -> Some 4 | _ -> None

(* How many elements a shape has, if that is a number. *)
let elements file name shape =
  List.fold_left (fun a n ->
    if n <> 0 && a > max_int / 8 / n then fail file (name ^ ": shape too large") else a * n) 1 shape

let counted s = s <> "" && String.length s <= 15 && String.for_all (fun c -> c >= '0' && c <= '9') s

let safetensors file =
  let bytes = map file in
  let size = Bigarray.Array1.dim bytes in
  let length = ref 0 in
  for i = 7 downto 0 do
    if !length > size then fail file "header length beyond the file";
    length := (!length lsl 8) lor Char.code bytes.{i}
  done;
  if !length < 2 || !length > size - 8 then fail file "header length beyond the file";
  if !length > 100_000_000 then fail file "header of more than 100 MB";
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
              | Json.Number s when counted s -> int_of_string s
              | _ -> fail file (name ^ "." ^ key ^ ": expected counts")) l
          | _ -> fail file (name ^ "." ^ key ^ ": expected an array") in
        match width_of dtype with
        | None -> None
        | Some width ->
          let shape = integers "shape" in
          let n = elements file name shape in
          match integers "data_offsets" with
          | [ from; until ] when from <= until && until <= size - base && until - from = n * width ->
            Some (name, { dtype; shape; data = bytes; start = base + from; width })
          | _ -> fail file (name ^ ": offsets do not fit shape and file")
      with Json.Error e -> fail file e) members
  | _ -> fail file "header: expected an object"

(* NumPy's format, versions 1 to 3: C order, little-endian. Words of two bytes without a type ("V2")
   are what the certificate says they are, BF16. *)
let npy file =
  let bytes = map file in
  let size = Bigarray.Array1.dim bytes in
  let byte i = Char.code bytes.{i} in
  if String.init 6 (fun i -> bytes.{i}) <> "\x93NUMPY" then fail file "found no .npy file";
  let version = byte 6 in
  if version < 1 || version > 3 then fail file (Printf.sprintf "found .npy version %d, expected 1 to 3" version);
  let at = if version = 1 then 10 else 12 in
  let length = if version = 1 then byte 8 lor (byte 9 lsl 8)
    else byte 8 lor (byte 9 lsl 8) lor (byte 10 lsl 16) lor (byte 11 lsl 24) in
  if length > size - at || length > 65536 then fail file "header length beyond the file";
  let header = String.init length (fun i -> bytes.{at + i}) in
  (* {'descr': '<f2', 'fortran_order': False, 'shape': (4, 5), } *)
  let value key =
    let quoted = "'" ^ key ^ "':" in
    let n = String.length quoted in
    let rec find i = if i + n > length then fail file ("header: found no " ^ key)
      else if String.sub header i n = quoted then i + n else find (i + 1) in
    let from = ref (find 0) in
    while !from < length && header.[!from] = ' ' do incr from done;
    String.sub header !from (length - !from) in
  let starts text prefix = String.length text >= String.length prefix && String.sub text 0 (String.length prefix) = prefix in
  let dtype =
    let descr = value "descr" in
    if starts descr "'<f4'" then "F32" else if starts descr "'<f2'" then "F16"
    else if starts descr "'|V2'" || starts descr "'<V2'" then "BF16"
    else fail file "descr: expected '<f4', '<f2' or '|V2'" in
  if not (starts (value "fortran_order") "False") then fail file "found Fortran order, expected C order";
  let shape =
    let text = value "shape" in
    match String.index_opt text '(', String.index_opt text ')' with
    | Some 0, Some close ->
      List.filter_map (fun part -> match String.trim part with
        | "" -> None
        | s when counted s -> Some (int_of_string s)
        | s -> fail file ("shape: found " ^ s)) (String.split_on_char ',' (String.sub text 1 (close - 1)))
    | _ -> fail file "shape: expected a tuple" in
  let width = match width_of dtype with Some w -> w | None -> fail file "dtype" in
  let n = elements file "shape" shape in
  if n > (size - at - length) / width || n * width <> size - at - length then
    fail file "the data do not fit the shape";
  { dtype; shape; data = bytes; start = at + length; width }

(* Rows of one head. *)
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

let[@inline] word_at r at =
  if r.word_bytes = 2 then get16 r.source at else Int32.to_int (get32 r.source at) land 0xffffffff
let[@inline] word r i c = word_at r (r.offset i + (r.word_bytes * c))

(* A row as a list, from its end. *)
let words r i =
  let at = r.offset i in
  let rec go c acc = if c < 0 then acc else go (c - 1) (word_at r (at + (r.word_bytes * c)) :: acc) in
  go (r.channels - 1) []

let digest r =
  let s = Sha256.start () in
  for i = 0 to r.count - 1 do Sha256.feed s r.source (r.offset i) (r.word_bytes * r.channels) done;
  Sha256.finish s
